"""Loops over the tiles of groups that several programs share."""
