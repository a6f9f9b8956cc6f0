"""Tangents in exponents: fewer reciprocals than numbers."""
