"""Operands that are packed before the programs of a grid run."""
