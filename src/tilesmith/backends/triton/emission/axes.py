"""Tile axes in scope: their first index, their indices and which lanes are valid.

Lines are reserved where an axis is bound and written only when something asks for them. An axis is
masked only where the schedule lets its last tile be shorter than the block. Coordinates that were
split from one index are joined again where they lie one after the other in memory:
``(k // n) * (n * s) + (k % n) * s`` is ``k * s``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce

from tilesmith.backends.source_writer import ReservedLines, SourceWriter, format_call
from tilesmith.backends.triton.emission.spelling import (
    Expr,
    Spelling,
    axis_suffix,
    call,
    identifier,
)
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.elementwise import Elementwise
from tilesmith.ir.ops.indexing import Full
from tilesmith.ir.ops.memory import Atomic, Load, Store
from tilesmith.ir.ops.shape import Broadcast, ExpandDims
from tilesmith.ir.traversal import walk_function
from tilesmith.ir.types import ONE, Dim, Extent, Shape, Value


@dataclass
class Axis:
    """One axis along which lanes have an index and may be past the end."""

    dim: Dim
    suffix: str
    start: Expr
    """First index; a literal 0 for slices."""
    end: Expr
    is_partial: bool
    place: ReservedLines
    moment: int
    """When the place was reserved, as the pool of names counts."""
    start_value: Value | None = None
    """The region argument that ``start`` stands for."""
    end_value: Value | None = None
    _indices: str = ""
    _mask: str = ""

    def indices(self, spelling: Spelling) -> Expr:
        """The index of every lane."""
        if not self._indices:
            self._indices = spelling.names.fresh(f"offs{self.suffix}", self.moment)
            lanes = call("tl.arange", 0, spelling.dim(self.dim))
            self._write(self._indices, self.start + lanes)
        return Expr(self._indices, shape=(self.dim,))

    def mask(self, spelling: Spelling) -> Expr:
        """Which lanes are before the end."""
        if not self._mask:
            indices = self.indices(spelling)
            self._mask = spelling.names.fresh(f"mask{self.suffix}", self.moment)
            self._write(self._mask, indices.infix("<", self.end))
        return Expr(self._mask, shape=(self.dim,))

    def release(self, spelling: Spelling) -> None:
        """Give the names back: a later loop over such an axis may use them again."""
        for name in (self._indices, self._mask):
            spelling.names.release(name)

    def _write(self, name: str, expr: Expr) -> None:
        lines = format_call(f"{name} = {expr.text}", expr.arguments, self.place.depth)
        self.place.lines.extend(lines)


class AxisScope:
    """The axes bound at the place being emitted, and the slices of the whole function."""

    def __init__(self, spelling: Spelling, writer: SourceWriter) -> None:
        self._spelling = spelling
        self._writer = writer
        self._bound: dict[str, Axis] = {}
        self._slices: dict[Dim, Axis] = {}
        self._slice_place: ReservedLines | None = None
        self._slice_moment = 0
        self.has_narrow_starts = False
        """Whether tiles are taken for whole ones that begin at numbers of 32 bits."""

    def reserve_slices(self) -> None:
        """Index tiles of slices are written here."""
        self._slice_place = self._writer.reserve()
        self._slice_moment = self._spelling.names.moment
        self._slices.clear()

    @contextmanager
    def binding(self, axes: dict[str, Axis]) -> Iterator[None]:
        """The axes of a loop, for as long as its body is emitted."""
        before = dict(self._bound)
        self._bound.update(axes)
        yield
        self._bound = before
        for axis in axes.values():
            axis.release(self._spelling)

    def find(self, block: str) -> Axis | None:
        """The axis that binds a block here."""
        return self._bound.get(block)

    def slice_axis(self, dim: Dim) -> Axis:
        """The axis of a slice over a constant or runtime size, starting at 0."""
        if dim not in self._slices:
            assert self._slice_place is not None
            size = dim.symbol or (1 if dim.constant is None else dim.constant)
            physical = self._spelling.schedule.physical(dim)
            self._slices[dim] = Axis(
                dim,
                f"_{identifier(str(size)).strip('_')}",
                Expr("0", constant=0, is_untyped=True),
                self._spelling.extent(size),
                is_partial=dim.constant is None or physical != dim.constant,
                place=self._slice_place,
                moment=self._slice_moment,
            )
        return self._slices[dim]

    def axis_of(self, dim: Dim) -> Axis | None:
        """What decides which lanes of a one-factor dimension are valid; None if all always are."""
        symbol = dim.symbol
        if symbol is not None and self._spelling.function.is_block(symbol):
            return self.find(symbol)
        return None if dim.is_one else self.slice_axis(dim)

    def mask(self, shape: Shape, axes: tuple[int, ...] | None = None) -> Expr | None:
        """The valid lanes of a tile along ``axes`` (all of them by default); None for all lanes."""
        masks: list[Expr] = []
        for axis, dim in enumerate(shape):
            mask = self._of_dim(dim) if axes is None or axis in axes else None
            if mask is not None:
                masks.append(expand(mask, axis, len(shape)))
        return conjunction(masks)

    def is_partial(self, dim: Dim) -> bool:
        """Whether some lane of the dimension may be invalid here."""
        axes = map(self.axis_of, _factors(dim))
        return any(axis is not None and axis.is_partial for axis in axes)

    def _of_dim(self, dim: Dim) -> Expr | None:
        if not self.is_partial(dim):
            return None
        factors = _factors(dim)
        if len(factors) == 1:
            axis = self.axis_of(dim)
            return None if axis is None else axis.mask(self._spelling)
        mask = self.mask(factors)
        assert mask is not None
        if mask.shape != factors:
            whole = self._spelling.shape(factors)
            mask = call("tl.broadcast_to", mask, whole, shape=factors)
        return call("tl.reshape", mask, self._spelling.shape((dim,)), shape=(dim,))


def start_name(block: str, arg: Value) -> str:
    """What to call the first index of a loop axis's tile, or the index of an axis without tiles."""
    return f"offset{axis_suffix(block)}" if block else arg.name or "index"


def expand(expr: Expr, axis: int, rank: int) -> Expr:
    """A one-dimensional tile as ``axis`` of a tile of ``rank`` dimensions."""
    if rank == 1:
        return expr
    shape = tuple(expr.shape[0] if i == axis else ONE for i in range(rank))
    return expr.subscript(tuple(i for i in range(rank) if i != axis), shape)


def conjunction(masks: list[Expr]) -> Expr | None:
    """All masks at once; None when there is none."""
    return reduce(lambda one, other: one.infix("&", other), masks) if masks else None


def _factors(dim: Dim) -> Shape:
    """The axes a merged axis consists of, outermost first."""
    return tuple(Dim.of(factor) for factor in dim.factors)


Term = tuple[Value, Extent]
"""An index and the stride it is multiplied with."""
Definitions = Mapping[Value, Operation]


def index_terms(
    tensor: Value, indices: Sequence[Value | None], defining: Definitions
) -> list[Term]:
    """What an address is the sum of; dimensions without an index or a stride add nothing."""
    pairs = zip(indices, tensor.tensor.strides)
    terms = [(index, stride) for index, stride in pairs if stride != 0 and index is not None]
    return _join(terms, defining)


def find_joined_values(function: Function, defining: Definitions) -> frozenset[Value]:
    """Coordinates that no address needs any more, and nothing else uses."""
    split: set[Value] = set()
    needed: set[Value] = set()
    for op in walk_function(function):
        if isinstance(op, (Load, Store, Atomic)):
            kept = {index for index, _ in index_terms(op.tensor, op.indices, defining)}
            split |= set(op.indices) - kept
            needed |= kept | _besides_indices(op)
        else:
            needed |= set(op.operand_values())
    return frozenset(
        value for value in split - needed if isinstance(defining.get(value), Elementwise)
    )


def _besides_indices(op: Load | Store | Atomic) -> set[Value]:
    """What an access reads otherwise; an index may be stored or added, too."""
    other = op.expected if isinstance(op, Atomic) else op.bases
    stored = None if isinstance(op, Load) else op.value
    return {part for part in (op.mask, other, stored) if part is not None}


def _join(terms: list[Term], defining: Definitions) -> list[Term]:
    for high in terms:
        for low in terms:
            joined = _try_join(high, low, defining)
            if joined is not None:
                rest = [term for term in terms if term is not high and term is not low]
                return _join([joined, *rest], defining)
    return terms


def _try_join(high: Term, low: Term, defining: Definitions) -> Term | None:
    quotient, remainder = defining.get(high[0]), defining.get(low[0])
    if not isinstance(quotient, Elementwise) or not isinstance(remainder, Elementwise):
        return None
    if (quotient.fn, remainder.fn) != ("floordiv", "mod"):
        return None
    divisor = _constant(quotient.args[1], defining)
    is_same = quotient.args[0] is remainder.args[0]
    if not is_same or divisor is None or divisor != _constant(remainder.args[1], defining):
        return None
    is_contiguous = isinstance(low[1], int) and high[1] == divisor * low[1]
    return (quotient.args[0], low[1]) if is_contiguous else None


def _constant(value: Value, defining: Definitions) -> int | None:
    op = defining.get(value)
    while isinstance(op, (Broadcast, ExpandDims)):
        op = defining.get(op.x)
    return int(op.value) if isinstance(op, Full) else None
