"""Launches that come before that of a kernel."""
