"""Inputs of a board: as many at a time as have room, and those that fit into its time."""
