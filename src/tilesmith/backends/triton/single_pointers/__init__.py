"""Pointers to one element that all lanes of a tile read."""
