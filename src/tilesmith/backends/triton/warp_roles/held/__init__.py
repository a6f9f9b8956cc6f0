"""Operands that a group keeps in registers for all turns of a tile."""
