"""The user's function as syntax: read, checked, split into host and device code, rewritten."""
