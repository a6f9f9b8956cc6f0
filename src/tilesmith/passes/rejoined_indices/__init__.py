"""Indices that were split into coordinates and are put together again."""
