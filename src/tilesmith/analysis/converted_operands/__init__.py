"""Operands of products that a loop computes from what it loads."""
