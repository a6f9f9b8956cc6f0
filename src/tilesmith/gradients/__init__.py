"""Reverse-mode differentiation: from a kernel's IR to a backward kernel in the same language."""
