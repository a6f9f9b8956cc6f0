"""Marks in the texts of errors."""
