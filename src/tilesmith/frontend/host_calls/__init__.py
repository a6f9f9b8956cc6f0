"""Calls of the user's functions in host code."""
