"""Loops whose tiles may be programs."""
