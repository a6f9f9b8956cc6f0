"""Kernels of several launches: each run of device loops is a stage, a kernel of its own."""
