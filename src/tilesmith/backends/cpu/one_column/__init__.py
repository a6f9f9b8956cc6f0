"""Products with one column."""
