"""Tiles of few programs that walk columns."""
