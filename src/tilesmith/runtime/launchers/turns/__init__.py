"""Kernels whose programs wait for each other, on several streams of one device."""
