"""Configs of GPU kernels that need no search, by what a kernel does."""
