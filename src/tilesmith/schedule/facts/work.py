"""How much a launch computes: counts that hold for any block sizes, by kind and element type.

What a program does once per tile of an axis is done more often when the tiles are smaller; such
counts keep the axis and give a number when asked with block sizes. Without block sizes every axis
counts as one tile, which is the least possible.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tilesmith.dtypes import DType
from tilesmith.ir.axis_roles import Along, Kept
from tilesmith.ir.operation import Operation, Trait
from tilesmith.ir.ops.control_flow import Loop
from tilesmith.ir.ops.elementwise import Elementwise
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.types import Dim, Shape
from tilesmith.schedule.facts.extents import Extents
from tilesmith.schedule.facts.outline import AnyLoop, LoopAxis, Site

NO_BLOCKS: Mapping[str, int] = {}
MATMUL, ELEMENTWISE, TRANSCENDENTAL, REDUCTION = (
    "matmul", "elementwise", "transcendental", "reduction",
)  # fmt: skip
Factor = tuple[str, int | str]
"""A block, and how far its axis ranges: a number or the outer block whose tile it walks."""


@dataclass(frozen=True)
class Count:
    """A number of elements or operations over a whole launch."""

    base: float | None
    """With every axis one tile; None when an extent is not known."""
    tiles: tuple[Factor, ...] = ()
    """Axes for each tile of which it happens again."""
    widths: tuple[tuple[str, int], ...] = ()
    """Axes of which it happens to one tile, not to the whole axis."""

    def at(self, blocks: Mapping[str, int] = NO_BLOCKS) -> float | None:
        """The number for these block sizes; an axis without one is a single tile."""
        if self.base is None:
            return None
        total = self.base
        for block, extent in self.tiles:
            reach = blocks.get(extent, 1) if isinstance(extent, str) else extent
            total *= -(-reach // max(1, blocks.get(block, reach)))
        for block, extent in self.widths:
            total *= min(extent, blocks.get(block, extent))
        return total

    def times(self, factor: float) -> Count:
        """The same, that many times."""
        return replace(self, base=None if self.base is None else self.base * factor)


UNCOUNTED = Count(None)


class Counter:
    """Counts how often the elements of a tile are computed in one launch."""

    def __init__(self, extents: Extents) -> None:
        self._extents = extents
        self._outline = extents.outline
        self._counts: dict[tuple[tuple[AnyLoop, ...], Shape], Count] = {}

    def elements(self, site: Site, shape: Shape) -> Count:
        """Elements of tiles of that shape at that place, over all programs and iterations."""
        key = (site.loops, shape)
        if key not in self._counts:
            self._counts[key] = self._count(site, shape)
        return self._counts[key]

    def _count(self, site: Site, shape: Shape) -> Count:
        symbols = {symbol for dim in shape for symbol in dim.symbols}
        total = _Product()
        for axis in (a for loop in site.loops for a in self._outline.axes_of(loop)):
            self._multiply_axis(total, axis, symbols)
        around = {block for loop in site.loops for block in loop.blocks}
        for factor in (factor for dim in shape for factor in dim.factors):
            if factor in around:
                # A second axis of the same block spans one tile.
                around.discard(str(factor))
            else:
                self._multiply_factor(total, factor)
        return self._finish(total)

    def _finish(self, total: _Product) -> Count:
        """Tiles of fixed size are a number."""
        tiles: list[Factor] = []
        for block, extent in total.tiles.items():
            fixed = self._fixed(block)
            if extent is None:
                total.scale(None)
            elif fixed is not None and isinstance(extent, int):
                total.scale(-(-extent // fixed))
            else:
                tiles.append((block, extent))
        return Count(total.base, tuple(tiles), tuple(total.widths.items()))

    def _multiply_axis(self, total: _Product, axis: LoopAxis, symbols: set[str]) -> None:
        length = self._extents.of_loop(axis)
        if not axis.block:
            step = self._step(axis)
            total.scale(None if length.count is None else -(-length.count // step) * length.share)
            return
        total.scale(length.share)
        outer = self._extents.outer_block(axis) or ""
        reach: int | str | None = outer if outer in symbols else length.count
        if outer in total.tiles:
            # Tile after tile, a loop over an outer tile walks the whole outer axis.
            reach = total.tiles.pop(outer)
        if axis.block not in symbols:
            total.tiles[axis.block] = reach
        elif isinstance(reach, str):
            total.widths[reach] = self._extents.of_dim(Dim.of(reach)).count or 1
        else:
            total.scale(reach)

    def _multiply_factor(self, total: _Product, factor: int | str) -> None:
        if isinstance(factor, int) or not self._outline.function.is_block(factor):
            total.scale(self._extents.of_size(factor).count)
            return
        fixed = self._fixed(factor)
        extent = self._extents.of_dim(Dim.of(factor)).count
        if fixed is None and extent is not None:
            total.widths[factor] = extent
        else:
            total.scale(fixed)

    def _fixed(self, block: str) -> int | None:
        function = self._outline.function
        return function.block(block).fixed if function.is_block(block) else None

    def _step(self, axis: LoopAxis) -> int:
        if not isinstance(axis.loop, Loop):
            return 1
        step = axis.loop.steps[sum(not block for block in axis.loop.blocks[: axis.position])]
        return max(1, self._outline.find_constant(step) or 1)


class _Product:
    """A Count in the making."""

    def __init__(self) -> None:
        self.base: float | None = 1.0
        self.tiles: dict[str, int | str | None] = {}
        self.widths: dict[str, int] = {}

    def scale(self, factor: float | None) -> None:
        """Multiply the number; unknown factors make it unknown."""
        self.base = None if self.base is None or factor is None else self.base * factor


@dataclass(frozen=True)
class WorkTerm:
    """Operations of one kind on one type."""

    kind: str
    """``matmul`` (two operations per multiply-add), ``elementwise``, ``transcendental`` (exp,
    log, tanh, ...) or ``reduction``."""
    dtype: str
    """The element type; of products the rate class: ``bf16``, ``tf32``, ``f32``, ..."""
    count: Count


@dataclass(frozen=True)
class WorkFact:
    """Everything a launch computes."""

    terms: tuple[WorkTerm, ...]

    def operations(
        self, kind: str, blocks: Mapping[str, int] = NO_BLOCKS
    ) -> dict[str, float] | None:
        """Operations of one kind by element type; None when an extent is not known."""
        found: dict[str, float] = {}
        for term in (term for term in self.terms if term.kind == kind):
            number = term.count.at(blocks)
            if number is None:
                return None
            found[term.dtype] = found.get(term.dtype, 0.0) + number
        return found

    def total(self, kind: str, blocks: Mapping[str, int] = NO_BLOCKS) -> float | None:
        """Operations of one kind over all types."""
        found = self.operations(kind, blocks)
        return None if found is None else sum(found.values())


def rate_class(lhs: DType, rhs: DType, precision: str) -> str:
    """What decides how fast a device multiplies: the wider operand type, for f32 its precision."""
    wider = max((lhs, rhs), key=lambda dtype: dtype.bits)
    if wider.name != "f32":
        return wider.name
    return "f32" if precision == "ieee" else precision


def _classify(site: Site) -> tuple[str, str, Shape, int] | None:
    """Kind, type, shape and operations per element of an op that computes tiles."""
    op = site.op
    if isinstance(op, Dot):
        lhs, rhs = op.lhs.tile, op.rhs.tile
        name = rate_class(lhs.dtype, rhs.dtype, op.precision)
        return MATMUL, name, (*lhs.shape, rhs.shape[-1]), 2
    if isinstance(op.form, Along):
        first = op.form.numbered(op).tile
        return REDUCTION, first.dtype.name, first.shape, len(tuple(op.operand_values()))
    if is_arithmetic(op) and op.result.tile.rank:
        is_hard = isinstance(op, Elementwise) and op.function.is_transcendental
        tile = op.result.tile
        return TRANSCENDENTAL if is_hard else ELEMENTWISE, tile.dtype.name, tile.shape, 1
    # All other forms move elements without computing any, or are the user's own code.
    return None


def is_arithmetic(op: Operation) -> bool:
    """Whether an op computes each element of its result from one element of each operand."""
    return isinstance(op.form, Kept) and Trait.VIEW not in op.traits


def collect_work(extents: Extents, counter: Counter) -> WorkFact:
    """All work of a function, equal terms added up."""
    sums: dict[tuple[str, str, Count], float | None] = {}
    for site in extents.outline.sites:
        found = _classify(site)
        if found is None:
            continue
        kind, dtype, shape, weight = found
        count = counter.elements(site, shape).times(weight)
        key = (kind, dtype, replace(count, base=0.0))
        before = sums.get(key, 0.0)
        sums[key] = None if before is None or count.base is None else before + count.base
    terms = sums.items()
    return WorkFact(tuple(WorkTerm(*key[:2], replace(key[2], base=base)) for key, base in terms))
