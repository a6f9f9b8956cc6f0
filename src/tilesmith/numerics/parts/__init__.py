"""Judging large results: a part of their elements at a time."""
