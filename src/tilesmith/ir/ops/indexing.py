"""Where a program is: constants, tile positions, block sizes, and the masks of partial tiles."""

from __future__ import annotations

from typing_extensions import override

from tilesmith.ir.axis_roles import Kept, Numbered, Uniform
from tilesmith.ir.operation import Operation, Trait, attribute, op, operand
from tilesmith.ir.types import Constant, Dim, Value


@op("full", Trait.PURE, axes=Uniform())
class Full(Operation):
    """A tile filled with one constant; rank 0 is a scalar constant."""

    value: int | float | bool = attribute()


@op("tile_index", Trait.PURE, axes=Numbered())
class TileIndex(Operation):
    """``begin + [0, 1, ...)`` for the tile of ``block``: shape ``[block]``, never clamped."""

    begin: Value = operand()
    block: str = attribute()

    @override
    def of_one_lane(self) -> tuple[Value | Constant, ...]:
        return (self.begin,)

    @override
    def verify(self) -> str | None:
        is_line = self.result.tile.shape == (Dim.of(self.block),)
        return None if is_line else "shape must be [block]"


@op("arange", Trait.PURE, axes=Numbered())
class Arange(Operation):
    """``[0, 1, ...)`` along a one-dimensional shape (a constant, a runtime size or a block)."""

    @override
    def of_one_lane(self) -> tuple[Value | Constant, ...]:
        return (0,)

    @override
    def verify(self) -> str | None:
        return None if self.result.tile.rank == 1 else "arange is one-dimensional"


@op("block_size", Trait.PURE, axes=Uniform())
class BlockSize(Operation):
    """The configured size of a block as a scalar (never clamped)."""

    block: str = attribute()


@op("mask", Trait.PURE | Trait.VIEW, axes=Kept("axes"))
class Mask(Operation):
    """``x`` with every lane outside the valid range of one of ``axes`` replaced by ``fill``.

    An axis is valid up to the end of the tile loop that binds its block, or up to its constant or
    runtime size where a backend pads it. Lanes that are always valid make this the identity.
    """

    x: Value = operand()
    fill: int | float | bool = attribute()
    axes: tuple[int, ...] = attribute()

    @override
    def verify(self) -> str | None:
        if not all(0 <= axis < self.x.tile.rank for axis in self.axes):
            return f"axes {self.axes} of a tile of rank {self.x.tile.rank}"
        return None if self.x.type == self.result.type else "mask changes the type"
