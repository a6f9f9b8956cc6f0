"""Benchmarks of kernels against alternatives: each in its own process, each result kept at once."""
