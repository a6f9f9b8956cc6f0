"""Errors and warnings as text."""
