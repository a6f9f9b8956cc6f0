"""Tensors that a kernel overwrites, before and after."""
