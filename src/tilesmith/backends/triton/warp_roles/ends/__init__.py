"""Tiles that end before their tensors do."""
