"""Loops over parts of an axis, as many turns in every program."""
