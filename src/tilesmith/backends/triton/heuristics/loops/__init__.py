"""Schedules of products in loops of their own length, and in several loops."""
