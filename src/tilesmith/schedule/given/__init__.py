"""Configs as users give them."""
