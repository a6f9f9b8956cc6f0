"""Calls of one set of sizes, of kernels that take others too."""
