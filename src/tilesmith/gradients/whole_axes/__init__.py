"""Whole axes of gradients cut into tiles, so that several programs can share the work on them."""
