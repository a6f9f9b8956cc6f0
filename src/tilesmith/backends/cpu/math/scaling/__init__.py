"""Floats times powers of two."""
