"""Sums whose rows a group reads into registers, once for all parts of the columns."""
