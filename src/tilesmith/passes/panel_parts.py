"""Parts of a row's reductions: made of one tile, left in memory, and put together.

``parts`` are lines of one number for each row of a panel; ``all_parts`` have one line for each tile
of the panel, and more lanes where a smaller tile would need them, which hold nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilesmith.analysis.derived_reductions import DerivedReduction, Rule
from tilesmith.dtypes import DType
from tilesmith.ir.ops.indexing import Arange
from tilesmith.ir.ops.memory import Load, Store
from tilesmith.ir.ops.reduction import ReduceKind
from tilesmith.ir.types import Dim, Shape, scalar
from tilesmith.ir.values import Value
from tilesmith.passes.tile_writer import TileWriter


@dataclass(frozen=True)
class Panel:
    """Where a program stands among those of its panel."""

    length: int
    """Of a row."""
    lanes: int
    """The most tiles of a row."""
    block: str
    """Of columns."""
    column: Value
    """The first of the program's tile."""
    rows: Value
    """The numbers of its rows."""


class PanelParts:
    """Writes what becomes of the parts in one program."""

    def __init__(self, write: TileWriter, panel: Panel) -> None:
        self._write = write
        self._panel = panel
        kind = panel.column.tile
        self._size = write.size_of(kind, panel.block)
        self._number = write.apply("floordiv", panel.column, self._size)
        self._number.name = "part"
        last = write.apply("floordiv", write.full(kind, panel.length - 1), self._size)
        self.num_parts = write.apply("add", last, write.full(kind, 1))
        self.num_parts.name = "num_parts"

    @property
    def _shape(self) -> Shape:
        """Of all parts."""
        return (Dim.of(self._panel.lanes), *self._panel.rows.tile.shape)

    def of_tile(self, derived: DerivedReduction, x: Value, base: Value) -> Value:
        """The tile's part of a derived sum, around the tile's own anchor."""
        write, axis = self._write, derived.op.axis
        if derived.rule is Rule.SQUARES:
            count = self._count_columns(base.tile.dtype)
            anchor = write.apply("div", base, write.spread(count, 0, base.tile.shape))
        else:
            # An anchor must be a number; a part of nothing but -inf has no power to shift.
            zero = write.full(base.tile, 0.0)
            anchor = write.apply("where", write.apply("isinf", base), zero, base)
        shifted = write.apply("sub", x, write.spread(anchor, axis, x.tile.shape))
        if derived.rule is Rule.SQUARES:
            return write.reduce(write.apply("mul", shifted, shifted), axis, "sum")
        return write.reduce(write.apply(derived.fn, shifted), axis, "sum")

    def leave(self, memory: Value, part: Value) -> None:
        """Store a part where the other programs look for it."""
        indices = (self._number, self._panel.rows)
        self._write.builder.effect(Store, tensor=memory, value=part, indices=indices)

    def collect(self, memory: Value) -> Value:
        """All programs' parts; lanes of none hold 0."""
        indices = self._write.place(self._numbers(), self._panel.rows)
        kind = scalar(memory.tensor.dtype).with_shape(self._shape)
        return self._write.builder.create(
            Load, kind, tensor=memory, mask=self._are_parts(), indices=indices
        )

    def together(self, kind: str, all_parts: Value) -> Value:
        """The reduction of whole rows."""
        identity = ReduceKind(kind).identity(all_parts.tile.dtype)
        return self._write.reduce(self._held(all_parts, identity), 0, kind)

    def together_around(
        self, derived: DerivedReduction, all_parts: Value, bases: Value, anchor: Value
    ) -> Value:
        """The derived sum of whole rows; of ``bases`` all parts, of the anchor that of the row."""
        write = self._write
        line = write.line(anchor, self._panel.rows.tile.shape)
        anchors = write.spread(line, 0, self._shape)
        if derived.rule is Rule.SQUARES:
            counts, shares = self._counts(bases.tile.dtype)
            off = write.apply("sub", write.apply("mul", bases, shares), anchors)
            moved = write.apply("mul", counts, write.apply("mul", off, off))
            sums = write.apply("add", all_parts, moved)
        else:
            shift = write.apply(derived.fn, write.apply("sub", bases, anchors))
            sums = write.apply("mul", all_parts, shift)
        return write.reduce(self._held(sums, 0.0), 0, "sum")

    def _numbers(self) -> Value:
        line = self._number.tile.with_shape((Dim.of(self._panel.lanes),))
        return self._write.builder.create(Arange, line)

    def _are_parts(self) -> Value:
        write, numbers = self._write, self._numbers()
        ends = write.spread(self.num_parts, 0, numbers.tile.shape)
        are_parts = write.apply("lt", numbers, ends)
        are_parts.name = "are_parts"
        return write.spread(are_parts, 1, self._shape)

    def _held(self, values: Value, otherwise: float) -> Value:
        """The values of parts, and in other lanes what leaves a reduction as it is."""
        write = self._write
        return write.apply("where", self._are_parts(), values, write.full(values.tile, otherwise))

    def _count_columns(self, dtype: DType) -> Value:
        """How many columns the program's tile has."""
        write = self._write
        end = write.full(self._panel.column.tile, self._panel.length)
        rest = write.apply("sub", end, self._panel.column)
        return write.cast(write.apply("minimum", rest, self._size), dtype)

    def _counts(self, dtype: DType) -> tuple[Value, Value]:
        """How many columns each tile of the panel has, and 1 divided by that.

        At least 1, for lanes of none too. One division for a tile, and none for each of its rows.
        """
        write, numbers = self._write, self._numbers()
        shape = numbers.tile.shape
        size = write.spread(self._size, 0, shape)
        end = write.full(numbers.tile, self._panel.length)
        rest = write.apply("sub", end, write.apply("mul", numbers, size))
        some = write.apply("maximum", write.apply("minimum", rest, size), write.full(end.tile, 1))
        count = write.cast(some, dtype)
        share = write.apply("div", write.full(count.tile, 1.0), count)
        return write.spread(count, 1, self._shape), write.spread(share, 1, self._shape)
