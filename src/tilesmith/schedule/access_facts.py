"""Facts about loads, stores and atomics: which axis runs along memory, and what is read again."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tilesmith.analysis.effects import is_elsewhere
from tilesmith.dtypes import DType
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import Arange, TileIndex
from tilesmith.ir.ops.memory import Atomic, Load, Store
from tilesmith.ir.ops.shape import Broadcast, ExpandDims
from tilesmith.ir.types import ONE, Dim, Extent, Shape
from tilesmith.ir.values import Value
from tilesmith.schedule.structure import Access, Site, Structure


@dataclass(frozen=True)
class IndexPattern:
    """How one tensor dimension is indexed.

    ``kind`` is ``tile`` (consecutive, from the begin of a tile), ``range`` (consecutive, a whole
    dimension), ``scalar`` or ``gather`` (anything else); ``dim`` is the tile axis it spans.
    """

    kind: str
    dim: Dim = ONE


SCALAR = IndexPattern("scalar")
GATHER = IndexPattern("gather")


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
        for stride, pattern in zip(self.strides, self.patterns):
            if stride == 1 and pattern.kind in ("tile", "range"):
                return pattern.dim
        return None

    @property
    def contiguous_block(self) -> str | None:
        """The block of that axis, if it has one."""
        dim = self.contiguous_dim
        for pattern in self.patterns:
            if pattern.kind == "tile" and pattern.dim == dim:
                return dim.symbol if dim is not None else None
        return None

    @property
    def is_aligned(self) -> bool:
        """Whether all rows start at a multiple of 16 bytes, as wide loads need."""
        others = [stride for stride in self.strides if stride != 1]
        size = self.dtype.itemsize
        return all(isinstance(stride, int) and stride * size % 16 == 0 for stride in others)

    @property
    def fits_descriptor(self) -> bool:
        """Whether a descriptor can cover the access: a dense rectangle, strides of 16 bytes."""
        is_dense = self.strides.count(1) == 1 and self.contiguous_dim is not None
        return self.is_rectangle and 2 <= len(self.strides) <= 5 and is_dense and self.is_aligned

    def untiled_elements(self, structure: Structure) -> int:
        """Elements per tiled element: the product of the axes that have no block."""
        is_block = structure.function.is_block
        whole = [dim for dim in self.shape if not any(map(is_block, dim.symbols))]
        return prod(structure.extent(dim) or 1 for dim in whole)


def classify_index(structure: Structure, value: Value) -> IndexPattern:
    """What an index tile enumerates."""
    if value.tile.rank == 0:
        return SCALAR
    op = structure.definitions.get(value)
    if isinstance(op, (ExpandDims, Broadcast, Cast)):
        return classify_index(structure, op.x)
    if isinstance(op, (TileIndex, Arange)):
        kind = "tile" if isinstance(op, TileIndex) else "range"
        return IndexPattern(kind, op.result.tile.shape[0])
    if isinstance(op, Elementwise) and op.fn in ("add", "sub"):
        patterns = [classify_index(structure, arg) for arg in op.args]
        moved = [pattern for pattern in patterns if pattern.kind != "scalar"]
        is_shift = len(moved) == 1 and (op.fn == "add" or patterns[0] is moved[0])
        return moved[0] if is_shift else GATHER if moved else SCALAR
    return GATHER


def _reuse(structure: Structure, site: Site, indices: tuple[Value, ...]) -> int:
    used = frozenset().union(*map(structure.roots, indices)) if indices else frozenset[Value]()
    absent = [
        axis.extent or 1
        for loop in site.loops
        for axis in structure.axes_of(loop)
        if axis.index not in used
    ]
    return prod(absent)


def _access_fact(structure: Structure, site: Site, op: Access) -> AccessFact:
    value = op.result if isinstance(op, Load) else op.value
    tensor = op.tensor.tensor
    patterns = tuple(classify_index(structure, index) for index in op.indices)
    return AccessFact(
        slot=op.slot,
        kind=op.name,
        tensor=op.tensor.name,
        dtype=tensor.dtype,
        shape=value.tile.shape,
        strides=tensor.strides,
        patterns=tuple(GATHER for _ in patterns) if is_elsewhere(op) else patterns,
        has_mask=op.mask is not None,
        reuse=_reuse(structure, site, op.indices),
    )


def collect_access_facts(structure: Structure) -> tuple[AccessFact, ...]:
    """Facts of all loads and stores by slot, then of all atomics."""
    wanted = {id(op) for op in (*structure.accesses, *structure.atomics)}
    facts = [
        _access_fact(structure, site, site.op)
        for site in structure.sites
        if id(site.op) in wanted and isinstance(site.op, (Load, Store, Atomic))
    ]
    moves = sorted((f for f in facts if f.kind != Atomic.name), key=lambda fact: fact.slot)
    atomics = sorted((f for f in facts if f.kind == Atomic.name), key=lambda fact: fact.slot)
    return (*moves, *atomics)
