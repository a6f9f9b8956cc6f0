"""Kernels as operators of torch: one node in graphs, with a schema and a fake implementation."""
