"""Groups of rows that are computed as one."""
