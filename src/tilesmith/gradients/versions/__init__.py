"""Tensors that a kernel reads before it overwrites them, as two tensors."""
