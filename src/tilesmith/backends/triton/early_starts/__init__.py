"""Launches that begin while the one before them ends."""
