"""Kernels whose warps have roles: one copies tiles, groups of four compute (Gluon, Hopper)."""
