"""Searches on many devices at once: those of this machine, or of a Ray cluster."""
