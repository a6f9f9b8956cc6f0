"""Calls of one form that run in native code from end to end (docs/decisions/0059)."""
