"""Loads that also fetch what the next program will load."""
