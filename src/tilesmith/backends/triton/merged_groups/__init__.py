"""Products of groups of rows that are computed as one."""
