"""Sums of columns beside products, in one launch."""
