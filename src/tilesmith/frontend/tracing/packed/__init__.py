"""Tensors whose elements torch can hold but not compute with: two FP4 numbers in a byte."""
