"""Statements of host code in a simpler form."""
