"""Comparisons of a loop's positions with its end."""
