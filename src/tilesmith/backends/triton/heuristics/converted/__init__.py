"""Defaults of products whose operands are converted."""
