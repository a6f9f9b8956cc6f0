"""Rewrites of source before it is traced: jumps, `match`, helpers, statements without need."""
