"""What a pass may ask of an op it does not know by name."""

from __future__ import annotations

from enum import Flag, auto


class Trait(Flag):
    """Properties of an op class."""

    NONE = 0
    PURE = auto()
    """No effect, result depends on operands only: may be merged, moved and removed."""
    READS = auto()
    """Reads memory."""
    WRITES = auto()
    """Writes memory."""
    TERMINATOR = auto()
    """Ends a region and hands its operands to the enclosing op."""
    VIEW = auto()
    """Computes nothing: each element is one of the only operand's, or a fill."""
    EFFECT = auto()
    """Has an effect other than on memory (prints, stops, foreign code): stays where it is."""
