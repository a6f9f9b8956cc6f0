"""Grids of a backward: which blocks it has, and which of its programs writes what."""
