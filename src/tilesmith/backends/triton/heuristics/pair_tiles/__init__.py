"""Tiles of products of pairs."""
