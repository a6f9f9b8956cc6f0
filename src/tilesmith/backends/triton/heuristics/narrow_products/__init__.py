"""Products with few rows or columns, and products whose operands are converted."""
