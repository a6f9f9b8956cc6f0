"""Kernels that leave the machine: packages with code that is already compiled."""
