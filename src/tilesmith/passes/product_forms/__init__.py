"""Products of numbers that come in pairs, as two products."""
