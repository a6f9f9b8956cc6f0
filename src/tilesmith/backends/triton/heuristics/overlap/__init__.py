"""Defaults by what runs while a program, a warp or a store waits."""
