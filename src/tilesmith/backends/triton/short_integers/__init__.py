"""Integers of 16 bits whose result may not fit them."""
