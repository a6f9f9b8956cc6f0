"""Emits a Triton module from a function and its schedule."""
