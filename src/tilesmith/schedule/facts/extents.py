"""How far axes range: as numbers where they are known, and in the user's words.

Constants of the kernel are exact. Runtime sizes take the values given, else what they were when
the kernel was traced; ends that depend on where a program stands give the longest range.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from tilesmith.ir.ops.elementwise import PYTHON_FUNCTIONS, Cast, Elementwise
from tilesmith.ir.ops.indexing import BlockSize
from tilesmith.ir.types import Dim, Extent, Shape, Value
from tilesmith.schedule.facts.outline import FunctionOutline, LoopAxis, known_product


@dataclass(frozen=True)
class Length:
    """A number of elements."""

    count: int | None
    is_exact: bool = True
    """Whether it is the same at every launch and in every program."""
    name: str = ""
    """What the user calls it, where it is no constant."""
    share: float = 1.0
    """The part of ``count`` that an average program walks."""
    is_most: bool = False
    """Whether ``count`` is only the most that it can be."""

    def __str__(self) -> str:
        if not self.name:
            return "?" if self.count is None else str(self.count)
        sign = "<=" if self.is_most else "="
        return self.name if self.count is None else f"{self.name}{sign}{self.count}"


UNKNOWN_LENGTH = Length(None, False)
_FUNCTIONS: dict[str, Callable[[int, int], int]] = {
    **{name: PYTHON_FUNCTIONS[name] for name in ("add", "sub", "mul")},
    "floordiv": lambda left, right: left // right if right else 0,
    "maximum": max,
}


@dataclass(frozen=True)
class Axis:
    """A tile axis: its block (None for a constant or runtime size) and how far it ranges in all."""

    dim: Dim
    block: str | None
    extent: int | None
    length: Length = UNKNOWN_LENGTH
    """The extent with its name."""
    index: str = ""
    """Of an axis of plain indices: the name of the index."""

    def extent_or(self, fallback: int) -> int:
        """The extent, or ``fallback`` where it is unknown."""
        return fallback if self.extent is None else self.extent

    def __str__(self) -> str:
        if self.block or self.index:
            return self.block or self.index
        return self.length.name or str(self.dim)


def _total(lengths: list[Length]) -> Length:
    count = known_product(length.count for length in lengths)
    is_exact = all(length.is_exact for length in lengths)
    name = "" if is_exact else "*".join(length.name or str(length.count) for length in lengths)
    return Length(count, is_exact, name, is_most=any(length.is_most for length in lengths))


class Extents:
    """Answers for one function.

    ``sizes`` are values by name: of runtime sizes and integers, and of bounds that are loaded.
    """

    def __init__(self, outline: FunctionOutline, sizes: Mapping[str, int] | None = None) -> None:
        self.outline = outline
        function = outline.function
        self._sizes = {size.name: size.hint for size in function.sizes} | dict(sizes or {})
        self._sources = {p.value.name: p.source for p in function.parameters}
        self._lengths: dict[Dim | Value, Length] = {}
        """Those of dimensions, and of loop axes by their index."""
        self._loop_axes = {axis.index: axis for axes in outline.axes.values() for axis in axes}

    def axis(self, dim: Dim) -> Axis:
        """The axis of a dimension."""
        is_tiled = dim.symbol is not None and self.outline.function.is_block(dim.symbol)
        length = self.of_dim(dim)
        return Axis(dim, dim.symbol if is_tiled else None, length.count, length)

    def of_dim(self, dim: Dim) -> Length:
        """How far a dimension ranges over all tiles of its loop."""
        if dim not in self._lengths:
            factors = [self._of_factor(factor) for factor in dim.factors]
            self._lengths[dim] = factors[0] if len(factors) == 1 else _total(factors)
        return self._lengths[dim]

    def of_size(self, extent: Extent) -> Length:
        """A size or stride of a tensor."""
        if isinstance(extent, int):
            return Length(extent)
        return Length(self._sizes.get(extent), False, self._sources.get(extent, extent))

    def of_loop(self, axis: LoopAxis) -> Length:
        """How far one axis of a loop ranges."""
        known = self._lengths
        return known.get(axis.index) or known.setdefault(axis.index, self._of_loop(axis))

    def _of_loop(self, axis: LoopAxis) -> Length:
        bound = self.outline.find_length_bound(axis.loop, axis.position)
        if isinstance(bound, int):
            return Length(bound)
        if bound is not None:
            return Length(self._of_factor(bound).count, False, bound, is_most=True)
        length = self._between(axis.loop.begins[axis.position], axis.loop.ends[axis.position])
        function, block = self.outline.function, axis.block
        is_known = length.count is not None or not block or not function.is_block(block)
        known = None if is_known else function.block(block).extent
        return length if known is None else replace(length, count=known, is_most=True)

    def outer_block(self, axis: LoopAxis) -> str | None:
        """The block whose tile the axis walks, if it does that."""
        outer = self._loop_axes.get(axis.loop.begins[axis.position])
        is_inside = self.outline.find_length_bound(axis.loop, axis.position) is not None
        return outer.block if outer is not None and is_inside and outer.block else None

    def reach(self, dim: Dim) -> int | None:
        """Positions that all programs together index along a dimension, where known."""
        axes = [a for a in self._loop_axes.values() if a.block and a.block == dim.symbol]
        if all(self._scalar(a.loop.begins[a.position]).is_exact for a in axes):
            return self.of_dim(dim).count
        outer = self.outer_block(axes[0])
        return None if outer is None else self.reach(Dim.of(outer))

    def text(self, dim: Dim) -> str:
        """A dimension in the user's words: a tile by its name, a runtime size as it is read."""
        return "*".join(self._sources.get(str(f), str(f)) for f in dim.factors) or "1"

    def shape_text(self, shape: Shape) -> str:
        """A tile's shape in the user's words."""
        return f"[{', '.join(map(self.text, shape))}]"

    def _of_factor(self, factor: Extent) -> Length:
        if isinstance(factor, int) or not self.outline.function.is_block(factor):
            return self.of_size(factor)
        found = [self.of_loop(a) for a in self._loop_axes.values() if a.block == factor]
        known = [length for length in found if length.count is not None]
        block = self.outline.function.block(factor)
        if not known and block.extent is None:
            return found[0] if found else Length(block.fixed)
        return max(known, key=lambda length: length.count or 0, default=Length(block.extent))

    def _between(self, begin: Value, end: Value) -> Length:
        first, last = self._scalar(begin), self._scalar(end)
        moving = [self._is_moving(begin), self._is_moving(end)]
        is_exact = first.is_exact and last.is_exact
        is_plain = first.count == 0 or not first.name
        name = "" if is_exact else last.name if is_plain else f"{last.name}-{first.name}"
        if first.count is None or last.count is None:
            return Length(None, False, name)
        # A loop up to where its program stands walks half of the range on average.
        share = 0.5 if sum(moving) == 1 else 1.0
        count = last.count if moving[0] else max(0, last.count - first.count)
        return Length(count, is_exact, name, share, is_most=any(moving))

    def positions_behind(self, value: Value) -> frozenset[Value]:
        """The loop positions that a value depends on, those that inner loops begin from too."""
        found = frozenset(root for root in self.outline.roots(value) if root in self._loop_axes)
        axes = map(self._loop_axes.__getitem__, found)
        return found.union(*(self.positions_behind(a.loop.begins[a.position]) for a in axes))

    def _is_moving(self, value: Value) -> bool:
        """Whether a scalar goes with the position of a loop around (a loaded one goes anyhow)."""
        goes = not self._loop_axes.keys().isdisjoint(self.outline.roots(value))
        return goes and not self.outline.is_data_dependent(value)

    def _name(self, value: Value, otherwise: str = "") -> str:
        """What the user calls a scalar; one that moves with a tile is its begin or its end."""
        if value.name and value not in self._loop_axes:
            return value.name
        roots = self.outline.roots(value)
        axes = [axis for root, axis in self._loop_axes.items() if root in roots and axis.block]
        side = "begin" if value in self._loop_axes else "end"
        return f"{axes[-1].block}.{side}" if axes else otherwise or value.name

    def _scalar(self, value: Value) -> Length:
        """A scalar integer: its value, or the most that it can be."""
        op = self.outline.definitions.get(value)
        constant = self.outline.find_constant(value)
        if constant is not None:
            return Length(constant, name=str(constant))
        if isinstance(op, Cast):
            return self._scalar(op.x)
        if value in self._loop_axes:
            return Length(self._last(self._loop_axes[value]).count, False, self._name(value))
        if op is None and not self.outline.is_data_dependent(value):
            return self.of_size(value.name)
        if isinstance(op, Elementwise) and len(op.args) == 2:
            return self._computed(value, op)
        return Length(self._sizes.get(value.name), False, value.name)

    def _in_tiles(self, op: Elementwise) -> Length | None:
        """Numbers of tiles times their size: where the loop over these tiles ends."""
        block, roots = self.outline.definitions.get(op.args[1]), self.outline.roots(op.args[0])
        axes = [axis for root, axis in self._loop_axes.items() if root in roots]
        is_whole = isinstance(block, BlockSize) and [axis.block for axis in axes] == [block.block]
        return self._last(axes[0]) if is_whole else None

    def _last(self, axis: LoopAxis) -> Length:
        return self._scalar(axis.loop.ends[axis.position])

    def _computed(self, value: Value, op: Elementwise) -> Length:
        if op.fn == "mul" and (end := self._in_tiles(op)):
            return Length(end.count, False, self._name(value))
        left, right = map(self._scalar, op.args)
        known = [length.count for length in (left, right) if length.count is not None]
        if op.fn == "minimum" and known:
            smaller = next(length for length in (left, right) if length.count == min(known))
            return Length(min(known), False, self._name(value, smaller.name))
        if left.count is None or right.count is None:
            return Length(self._sizes.get(value.name), False, self._name(value))
        if op.fn == "sub" and self._is_moving(op.args[1]):
            return Length(left.count, False, self._name(value))
        function = _FUNCTIONS.get(op.fn)
        count = None if function is None else function(left.count, right.count)
        is_exact = left.is_exact and right.is_exact and count is not None
        return Length(count, is_exact, self._name(value))
