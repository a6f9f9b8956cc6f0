"""Factors a little above a power of two: one multiply-add of pairs instead of two."""
