"""Tiles whose columns are no power of two, computed in parts that are."""
