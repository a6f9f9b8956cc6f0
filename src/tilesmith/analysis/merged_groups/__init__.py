"""Loops over rows of groups that may be one loop over all rows."""
