"""Kernels in graphs of torch, and what torch differentiates."""
