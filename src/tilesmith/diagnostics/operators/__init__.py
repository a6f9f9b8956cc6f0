"""Errors of kernels that are operators of torch."""
