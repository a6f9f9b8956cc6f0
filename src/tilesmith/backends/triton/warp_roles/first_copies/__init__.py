"""Copies that are started before warps take their roles."""
