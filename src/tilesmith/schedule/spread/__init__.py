"""Tiles that one program for each group would walk, and that programs may share."""
