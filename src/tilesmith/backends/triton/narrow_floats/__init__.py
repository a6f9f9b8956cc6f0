"""Floats of eight bits: conversions that give what torch gives, and values that need no care."""
