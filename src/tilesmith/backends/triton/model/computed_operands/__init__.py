"""Operands of products that a loop computes: what is loaded for them arrives ahead, too."""
