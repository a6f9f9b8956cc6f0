"""Lanes past the end of a tile that may hold anything, since only a masked store meets them."""
