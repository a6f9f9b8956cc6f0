"""Schedules from facts, without a search: one file per family of kernels."""
