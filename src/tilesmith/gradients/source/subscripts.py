"""Accesses of tensors as subscripts: tiles, slices and numbers where the indices are such."""

from __future__ import annotations

from dataclasses import dataclass

from tilesmith.analysis.affine import find_affine
from tilesmith.gradients.source.expressions import Expressions
from tilesmith.gradients.source.texts import listed
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.indexing import Arange, Full, TileIndex
from tilesmith.ir.ops.memory import Atomic, Load, Store
from tilesmith.ir.ops.shape import ExpandDims
from tilesmith.ir.types import Dim, Extent, Value


@dataclass(frozen=True)
class _Element:
    """One index: its text, and the axis of the accessed tile that it has, if any."""

    text: str
    axis: int | None = None
    is_broad: bool = False
    """Whether it has several axes."""


class Subscripts:
    """Writes the indices of accesses."""

    def __init__(self, expressions: Expressions) -> None:
        self._expressions = expressions
        self._scope = expressions.scope

    def elements(self, op: Load | Store | Atomic) -> list[str]:
        """The index elements of an access."""
        rank = (op.result if isinstance(op, Load) else op.value).tile.rank
        sizes = op.tensor.tensor.shape
        found: list[_Element] = []
        for index, size in zip(op.indices, sizes):
            after = found[-1].axis if found else -1
            is_only = after is not None and size == 1 and self._is_zero(index)
            single = _Element(":", (after or 0) + 1 if found else 0) if is_only else None
            found.append(single or self._element(index, size, rank))
        axes = [element.axis for element in found if element.axis is not None]
        is_product = axes == list(range(rank)) and not any(e.is_broad for e in found)
        if is_product:
            lines = [i for i, e in enumerate(found) if e.text.startswith("hl.arange(")]
            # Two lines of one length are said to form a product: torch would pair them.
            is_square = rank == len(lines) == 2 and lines[1] == lines[0] + 1
            forms = ("[:, None]", "[None, :]") if is_square else ("",) * rank
            return [e.text if e.axis is None else e.text + forms[e.axis] for e in found]
        if len(found) == 1:
            return [self._expressions.whole(op.indices[0]).code]
        together = ", ".join(self._expressions.text(index).code for index in op.indices)
        return [f"hl.paired({together})"]

    def _is_zero(self, index: Value) -> bool:
        """Whether it is the first index along an axis of its own of length one."""
        op = self._scope.definitions.get(index)
        is_one = index.tile.rank > 1 and all(dim.is_one for dim in index.tile.shape)
        return is_one and isinstance(op, Full) and op.value == 0

    def subscript(self, op: Load | Store | Atomic) -> str:
        """``x[tile_m, :]``."""
        elements = ", ".join(self.elements(op)) or "()"
        return f"{self._scope.tensor(op.tensor)}[{elements}]"

    def listed(self, op: Load | Store | Atomic) -> str:
        """``x, [tile_m, :]``, as ``hl.load`` and the like take it."""
        elements = ["slice(None)" if e == ":" else _slice_call(e) for e in self.elements(op)]
        return f"{self._scope.tensor(op.tensor)}, {listed(elements)}"

    def _element(self, index: Value, size: Extent, rank: int) -> _Element:
        if not index.tile.rank:
            return _Element(self._expressions.text(index).code)
        op = self._scope.definitions.get(index)
        line, axis = index, rank - 1
        if isinstance(op, ExpandDims) and op.x.tile.rank == 1:
            line = op.x
            axis = next(i for i in range(index.tile.rank) if i not in op.axes)
            axis += rank - index.tile.rank
        elif isinstance(op, ExpandDims) and not op.x.tile.rank:
            return _Element(self._expressions.text(op.x).code)
        elif index.tile.rank > 1:
            return self._only_tile(index, size, rank) or _Element("", None, is_broad=True)
        return _Element(self._line(line, size), axis)

    def _only_tile(self, index: Value, size: Extent, rank: int) -> _Element | None:
        """The tile of an axis of length one, whose only index is known."""
        op = self._scope.definitions.get(index)
        wide = [axis for axis, dim in enumerate(index.tile.shape) if not dim.is_one]
        if not isinstance(op, Full) or op.value != 0 or size != 1 or len(wide) != 1:
            return None
        tile = self._scope.tile_of(index.tile.shape[wide[0]].symbol or "")
        axis = wide[0] + rank - index.tile.rank
        return None if tile is None else _Element(tile.name, axis)

    def is_slice(self, op: Operation) -> bool:
        """Whether it gives indices that are written as a slice, wherever they are used."""
        value = op.results[0] if op.results else None
        is_line = value is not None and value.tile.rank == 1 and value.tile.dtype.is_integer
        return is_line and value is not None and bool(self._slice(value))

    def _line(self, line: Value, size: Extent) -> str:
        """Indices along one axis."""
        op = self._scope.definitions.get(line)
        if line not in self._scope.texts:
            if isinstance(op, TileIndex):
                tile = self._scope.tiles.get(op.begin)
                if tile is not None and tile.block == op.block:
                    return tile.name
            is_first = isinstance(op, Full) and op.value == 0 and size == 1
            if (isinstance(op, Arange) or is_first) and line.tile.shape[0] == Dim.of(size):
                return ":"
            if is_first:
                tile = self._scope.tile_of(line.tile.shape[0].symbol or "")
                if tile is not None:
                    return tile.name
            if part := self._slice(line):
                return part
        return self._expressions.whole(line).code

    def _slice(self, line: Value) -> str:
        """A slice with known bounds; empty where it is none."""
        form = find_affine(line, self._scope.definitions)
        length = line.tile.shape[0].constant
        if form is None or form.base or form.axis is None or length is None or form.scale < 1:
            return ""
        stop = form.offset + form.scale * (length - 1) + 1
        step = f":{form.scale}" if form.scale > 1 else ""
        return f"{form.offset or ''}:{stop}{step}"


def _slice_call(element: str) -> str:
    """A slice outside of brackets."""
    parts = element.split(":")
    is_slice = len(parts) > 1 and all(part.isdigit() or not part for part in parts)
    return f"slice({', '.join(part or 'None' for part in parts)})" if is_slice else element
