"""Tiles that change the order of their axes."""
