"""Faults injected on purpose, and what becomes of searches, caches and processes."""
