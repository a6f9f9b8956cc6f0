"""Factors of products."""
