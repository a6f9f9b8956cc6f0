"""Rows that several programs share: where a function has some, and what they exchange."""
