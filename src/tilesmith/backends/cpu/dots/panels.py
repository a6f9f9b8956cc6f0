"""How an operand lies in memory, where its panels come from and where they go."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tilesmith.backends.cpu.registers import INDEX, POINTER, LType, Register


class Order(Enum):
    """Which axis of an operand lies contiguously."""

    MAJOR = "major"
    DEPTH = "depth"
    NEITHER = "neither"


@dataclass(frozen=True)
class Panels:
    """Where the panels of an operand come from and go to.

    ``majors`` elements are there along the major axis, which may be more than ``count`` panels.
    """

    source: Register
    major_stride: Register
    depth_stride: Register
    target: Register
    majors: Register
    depth: Register
    count: Register

    def arguments(self) -> tuple[Register, ...]:
        """In the order in which packing functions take them."""
        source = self.source, self.major_stride, self.depth_stride
        return *source, self.target, self.majors, self.depth, self.count


PANEL_PARAMETERS = (
    ("source", LType(POINTER)),
    ("major_stride", LType(INDEX)),
    ("depth_stride", LType(INDEX)),
    ("target", LType(POINTER)),
    ("majors", LType(INDEX)),
    ("depth", LType(INDEX)),
    ("count", LType(INDEX)),
)
