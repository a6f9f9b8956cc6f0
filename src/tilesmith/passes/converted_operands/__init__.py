"""Operands of products, computed in a launch of their own."""
