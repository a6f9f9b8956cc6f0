"""Infinities and NaN that Triton would make numbers of, or lose."""
