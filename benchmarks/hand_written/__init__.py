"""Kernels written by hand in Triton, as functions of an operator's arguments, to compare with."""
