"""Passes that run where a backend asks for them."""
