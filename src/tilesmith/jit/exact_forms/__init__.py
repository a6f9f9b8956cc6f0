"""Calls of one set of sizes and numbers, of kernels that take others too."""
