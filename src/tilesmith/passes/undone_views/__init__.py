"""Elementwise functions between views that undo each other."""
