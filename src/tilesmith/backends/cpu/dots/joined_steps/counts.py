"""How many steps along k a packed element holds."""

BYTES, PAIRS = 4, 2
"""Of int8 and of bf16."""
