"""Calls of kernels that go to native code before any Python runs."""
