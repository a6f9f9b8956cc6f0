"""Rewrites of the IR for GPUs: less work, or the same work at a better time."""
