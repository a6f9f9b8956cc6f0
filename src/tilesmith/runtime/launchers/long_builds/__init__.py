"""Launches whose code would take minutes to compile."""
