"""Loops over blocks whose places are loaded."""
