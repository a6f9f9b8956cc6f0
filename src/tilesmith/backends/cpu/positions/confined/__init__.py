"""Writes to computed positions, kept inside of a tensor's memory."""
