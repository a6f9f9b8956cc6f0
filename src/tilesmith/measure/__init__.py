"""Timing on the CPU and on devices, and the statistics of what was timed."""
