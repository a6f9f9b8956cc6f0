"""Kernels with warp roles in Gluon, written by hand for Hopper: what a compiler should reach."""
