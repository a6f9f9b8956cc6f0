"""Rows that are loaded, and reduced by several programs each."""
