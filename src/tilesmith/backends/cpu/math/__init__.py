"""Arithmetic on registers: conversions, scalar functions, accumulators, elementary functions."""
