"""Tiles that get other axes, where Triton goes wrong about them."""
