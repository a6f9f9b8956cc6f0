"""Sides of a product's tile: their blocks, shares of a sum, parts that are stored."""
