"""Facts about loads, stores and atomics: bytes, which axis runs along memory, what is read again.

``AccessFact`` says what one access moves, how, and what it is for; ``tensor_traffic`` adds up what
must be moved at least.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import gcd, prod

from tilesmith.analysis.effects import alias_group, exchanged_memory, is_elsewhere
from tilesmith.diagnostics.location import UNKNOWN, SourceLocation
from tilesmith.dtypes import DType
from tilesmith.ir.axis_roles import Along
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.control_flow import If, Loop, While
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.memory import Atomic, Load, Store
from tilesmith.ir.types import Dim, Extent, Shape, Value
from tilesmith.schedule.facts.dataflow import (
    GATHER,
    Dataflow,
    IndexPattern,
    access_text,
    classify_index,
    find_loop_axis,
)
from tilesmith.schedule.facts.extents import Extents
from tilesmith.schedule.facts.outline import Access, FunctionOutline, Site, known_product
from tilesmith.schedule.facts.work import NO_BLOCKS, UNCOUNTED, Count, Counter

VECTOR_BYTES = 16
"""The widest access of one thread."""


@dataclass(frozen=True)
class Purpose:
    """What loaded elements are used for, before any product or reduction of them."""

    sides: tuple[str, ...] = ()
    """Of matrix products: ``lhs``, ``rhs``."""
    reduced: tuple[Dim, ...] = ()
    """Axes they are reduced over, one for each reduction."""
    num_stores: int = 0
    is_index: bool = False
    """Whether they say where something else is, or how far a loop goes."""

    @property
    def is_reread(self) -> bool:
        """Whether a row is needed again after a reduction of it."""
        most = max(map(self.reduced.count, self.reduced), default=0)
        return most > 1 or (most == 1 and self.num_stores > 0)


NO_PURPOSE = Purpose()


@dataclass(frozen=True)
class AccessFact:
    """One load, store or atomic."""

    slot: int
    kind: str
    """``load``, ``store`` or ``atomic``."""
    tensor: str
    dtype: DType
    shape: Shape
    """The accessed tile."""
    strides: tuple[Extent, ...]
    patterns: tuple[IndexPattern, ...]
    """One per tensor dimension."""
    has_mask: bool
    reuse: int
    """How often each element is accessed: the extent of the axes around that do not index it."""
    known_strides: tuple[int | None, ...] = ()
    """Strides as numbers, where runtime sizes are known."""
    text: str = ""
    """The access as the user would write it: ``x[tile_m, :]``."""
    moved: Count = UNCOUNTED
    """Elements, with repetitions."""
    distinct: int | None = None
    """Different elements at most, where known."""
    tensor_elements: int | None = None
    purpose: Purpose = NO_PURPOSE
    is_exchanged: bool = False
    """Whether the kernel both reads and changes the memory, by plain accesses of it too."""
    loc: SourceLocation = UNKNOWN

    @property
    def is_scalar(self) -> bool:
        """Whether a single element is accessed."""
        return all(dim.is_one for dim in self.shape)

    @property
    def is_rectangle(self) -> bool:
        """Whether the elements form a rectangle of the tensor."""
        return not self.is_scalar and all(pattern.kind != "gather" for pattern in self.patterns)

    @property
    def contiguous_dim(self) -> Dim | None:
        """The tile axis along which the elements are neighbours in memory."""
        return None if self._contiguous is None else self._contiguous.dim

    @property
    def _contiguous(self) -> IndexPattern | None:
        pairs = zip(self.strides, self.patterns)
        return next((p for stride, p in pairs if stride == 1 and p.kind in ("tile", "range")), None)

    @property
    def contiguous_block(self) -> str | None:
        """The block of that axis, if it has one."""
        dim = self.contiguous_dim
        is_tile = any(pattern.kind == "tile" and pattern.dim == dim for pattern in self.patterns)
        return dim.symbol if dim is not None and is_tile else None

    @property
    def is_aligned(self) -> bool:
        """Whether all rows start at a multiple of 16 bytes, as wide loads need."""
        others = [stride for stride in self.strides if stride != 1]
        size = self.dtype.itemsize
        return all(isinstance(stride, int) and stride * size % 16 == 0 for stride in others)

    @property
    def vector_width(self) -> int:
        """Elements that one thread can move at once, as far as strides tell; 1: one by one."""
        return 1 if None in self.known_strides else self.widest_vector

    @property
    def widest_vector(self) -> int:
        """The same if all strides that only a launch knows are multiples of 16 bytes."""
        pattern = self._contiguous
        if pattern is None or pattern.is_shifted:
            return 1
        width = max(1, VECTOR_BYTES // self.dtype.itemsize)
        known = (stride for stride in self.known_strides if stride is not None)
        return gcd(width, *(stride for stride in known if stride != 1))

    @property
    def fits_descriptor(self) -> bool:
        """Whether a descriptor can cover the access: a dense rectangle, strides of 16 bytes.

        Nothing orders descriptors with plain accesses of the same memory; no axis is 0 or expanded.
        """
        if self.is_exchanged or 0 in (*self.strides, self.tensor_elements):
            return False
        is_dense = self.strides.count(1) == 1 and self.contiguous_dim is not None
        return self.is_rectangle and 2 <= len(self.strides) <= 5 and is_dense and self.is_aligned

    @property
    def distinct_bytes(self) -> int | None:
        """Bytes of different elements: what is moved at least, whatever caches do."""
        return None if self.distinct is None else self.distinct * self.dtype.itemsize

    def bytes_moved(self, blocks: Mapping[str, int] = NO_BLOCKS) -> float | None:
        """Bytes that all programs ask for together; without block sizes the least there can be."""
        count = self.moved.at(blocks)
        return None if count is None else count * self.dtype.itemsize

    def untiled_elements(self, outline: FunctionOutline) -> int:
        """Elements per tiled element: the product of the axes that have no block."""
        is_block = outline.function.is_block
        whole = [dim for dim in self.shape if not any(map(is_block, dim.symbols))]
        return prod(outline.extent(dim) or 1 for dim in whole)


@dataclass(frozen=True)
class Traffic:
    """Bytes that must be moved at least: every element that is used, once each way."""

    read: int | None
    written: int | None

    @property
    def total(self) -> int | None:
        """Both ways."""
        return None if self.read is None or self.written is None else self.read + self.written


def tensor_traffic(accesses: Sequence[AccessFact]) -> Traffic:
    """The traffic of all accesses; parts of a tensor that several touch count once."""
    reads = [fact for fact in accesses if fact.kind != "store"]
    writes = [fact for fact in accesses if fact.kind != "load"]
    return Traffic(_once_each(reads), _once_each(writes))


def _once_each(accesses: list[AccessFact]) -> int | None:
    regions: dict[str, dict[tuple[IndexPattern, ...], AccessFact]] = {}
    for fact in accesses:
        regions.setdefault(fact.tensor, {}).setdefault(fact.patterns, fact)
    return _known_sum([_of_one_tensor(list(parts.values())) for parts in regions.values()])


def _known_sum(sizes: list[int | None]) -> int | None:
    known = [size for size in sizes if size is not None]
    return sum(known) if len(known) == len(sizes) else None


def _of_one_tensor(parts: list[AccessFact]) -> int | None:
    total, whole = _known_sum([fact.distinct_bytes for fact in parts]), parts[0].tensor_elements
    if whole is None:
        return total
    most = whole * parts[0].dtype.itemsize
    return most if total is None else min(most, total)


class AccessCollector:
    """Makes the facts of one function's accesses."""

    def __init__(self, extents: Extents, counter: Counter, flow: Dataflow) -> None:
        self._extents = extents
        self._outline = extents.outline
        self._counter = counter
        self._flow = flow
        self._exchanged = exchanged_memory(self._outline.function)

    def collect(self) -> tuple[AccessFact, ...]:
        """Facts of all loads and stores by slot, then of all atomics."""
        sites = {id(site.op): site for site in self._outline.sites}
        ops = (*self._outline.accesses, *self._outline.atomics)
        return tuple(self._fact(sites[id(op)], op) for op in ops)

    def _fact(self, site: Site, op: Access) -> AccessFact:
        shape, tensor = _shape_of(op), op.tensor.tensor
        is_far = is_elsewhere(op)
        patterns = tuple(
            GATHER if is_far else classify_index(self._outline, index) for index in op.indices
        )
        return AccessFact(
            slot=op.slot,
            kind=op.name,
            tensor=op.tensor.name,
            dtype=tensor.dtype,
            shape=shape,
            strides=tensor.strides,
            patterns=patterns,
            has_mask=op.mask is not None,
            reuse=self._reuse(site, op.indices),
            known_strides=tuple(self._extents.of_size(s).count for s in tensor.strides),
            text=access_text(self._outline, op),
            moved=self._counter.elements(site, shape),
            distinct=self._distinct(site, op, patterns),
            tensor_elements=None if is_far else self._tensor_elements(op.tensor),
            purpose=_find_purpose(self._flow, op.result) if isinstance(op, Load) else Purpose(),
            is_exchanged=not isinstance(op, Atomic) and alias_group(op.tensor) in self._exchanged,
            loc=op.loc,
        )

    def _reuse(self, site: Site, indices: tuple[Value, ...]) -> int:
        used = frozenset[Value]().union(*map(self._extents.positions_behind, indices))
        axes = [axis for loop in site.loops for axis in self._outline.axes_of(loop)]
        return prod(self._extents.of_loop(a).count or 1 for a in axes if a.index not in used)

    def _tensor_elements(self, tensor: Value) -> int | None:
        """Elements in memory: an expanded dimension counts once."""
        extents = zip(tensor.tensor.shape, tensor.tensor.strides)
        return known_product(
            self._extents.of_size(size).count for size, stride in extents if stride != 0
        )

    def _distinct(self, site: Site, op: Access, patterns: tuple[IndexPattern, ...]) -> int | None:
        if is_elsewhere(op):
            count = self._counter.elements(site, _shape_of(op)).at()
            return None if count is None else int(count)
        return known_product(
            1 if stride == 0 else self._reach(site, op, position, patterns[position])
            for position, stride in enumerate(op.tensor.tensor.strides)
        )

    def _reach(self, site: Site, op: Access, position: int, pattern: IndexPattern) -> int | None:
        """Positions of one tensor dimension that are accessed, at most its size."""
        whole = self._extents.of_size(op.tensor.tensor.shape[position]).count
        reach = self._positions(site, op.indices[position], pattern)
        if reach is None or whole is None:
            return whole if reach is None else reach
        return min(reach, whole)

    def _positions(self, site: Site, index: Value, pattern: IndexPattern) -> int | None:
        if pattern.kind in ("tile", "range") and not pattern.is_shifted:
            return self._extents.reach(pattern.dim)
        if self._outline.is_data_dependent(index):
            count = self._counter.elements(site, index.tile.shape).at()
            return None if count is None else max(1, int(count))
        # One for each combination of the lanes and of the loop positions that it is made of.
        lanes = [self._extents.of_dim(dim).count for dim in index.tile.shape]
        loops = [
            self._extents.of_loop(axis).count
            for root in self._outline.roots(index)
            if (axis := find_loop_axis(self._outline, root)) is not None
            and not any(axis.block in dim.symbols for dim in index.tile.shape)
        ]
        return known_product((*lanes, *loops))


def _shape_of(op: Access) -> Shape:
    return (op.result if isinstance(op, Load) else op.value).tile.shape


def _find_purpose(flow: Dataflow, value: Value) -> Purpose:
    uses = list(flow.uses(value))
    # The third operand of a product is what it adds to.
    sides = [
        "lhs" if used is op.lhs else "rhs" if used is op.rhs else "acc"
        for op, used in uses
        if isinstance(op, Dot)
    ]
    reduced = [used.tile.shape[op.form.axis(op)] for op, used in uses if isinstance(op.form, Along)]
    stores = [op for op, used in uses if isinstance(op, (Store, Atomic)) and op.value is used]
    return Purpose(
        sides=tuple(dict.fromkeys(sides)),
        reduced=tuple(reduced),
        num_stores=len(stores),
        is_index=any(_is_position(op, used) for op, used in uses),
    )


def _is_position(op: Operation, used: Value) -> bool:
    if isinstance(op, (Load, Store, Atomic)):
        return used in op.indices
    return isinstance(op, (Loop, If, While))
