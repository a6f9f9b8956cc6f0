"""Tiles that a loop adds up, for the sake of the sum of their lines."""
