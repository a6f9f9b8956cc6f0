"""Loops and scans with nothing to do, which Triton compiles wrongly."""
