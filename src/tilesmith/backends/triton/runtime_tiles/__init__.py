"""Tiles along sizes that are known at a launch only."""
