"""Facts about a function, from its IR, in the user's names: what it multiplies, reduces and moves.

Heuristics and resource estimates read these, never op patterns. Composed facts hold simple ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tilesmith.analysis.product_sizes import least_contracted
from tilesmith.diagnostics.location import SourceLocation
from tilesmith.dtypes import DType
from tilesmith.ir.ops.combine import ReduceWith, ScanWith
from tilesmith.ir.ops.elementwise import Elementwise
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.memory import Store
from tilesmith.ir.ops.rearrangement import Sort
from tilesmith.ir.ops.reduction import Reduce
from tilesmith.ir.ops.scan import Scan
from tilesmith.ir.types import Dim, TileType
from tilesmith.schedule.access_facts import AccessFact, collect_access_facts
from tilesmith.schedule.structure import Site, Structure

Combining = Reduce | Scan | ReduceWith | ScanWith | Sort


@dataclass(frozen=True)
class Axis:
    """A tile axis: its block (None for a constant or runtime size) and how far it ranges in all."""

    dim: Dim
    block: str | None
    extent: int | None

    def extent_or(self, fallback: int) -> int:
        """The extent, or ``fallback`` where it is unknown."""
        return fallback if self.extent is None else self.extent


@dataclass(frozen=True)
class MatmulFact:
    """One ``dot``: axes, element types and whether it accumulates over a loop."""

    m: Axis
    n: Axis
    k: Axis
    batch: Axis | None
    lhs_dtype: DType
    rhs_dtype: DType
    acc_dtype: DType
    precision: str
    is_looped: bool
    """Whether it stands in a sequential loop."""
    min_k: int
    """The least K that matrix instructions take."""
    loc: SourceLocation

    @property
    def axes(self) -> tuple[Axis, ...]:
        """M, N and K."""
        return (self.m, self.n, self.k)

    @property
    def itemsize(self) -> int:
        """Bytes of the wider operand's elements."""
        return max(self.lhs_dtype.itemsize, self.rhs_dtype.itemsize)

    @property
    def uses_tensor_cores(self) -> bool:
        """Whether GPUs multiply these with matrix units rather than lane by lane."""
        if self.lhs_dtype.bits == 32 and self.lhs_dtype.is_float:
            return self.precision != "ieee"
        return self.lhs_dtype.bits < 32


@dataclass(frozen=True)
class ReductionFact:
    """All reductions over one axis."""

    axis: Axis
    kind: str
    """``rollable`` (whole or in chunks), ``persistent`` (only whole) or ``tile`` (over a block)."""
    functions: tuple[str, ...]
    dtype: DType
    is_reread: bool
    """Whether the row is used again after a reduction of it."""
    loc: SourceLocation


@dataclass(frozen=True)
class MatmulWithReductionEpilogueFact:
    """One matmul whose untiled output axis is then reduced."""

    matmul: MatmulFact
    reduction: ReductionFact


@dataclass(frozen=True)
class AttentionFact:
    """Two chained matmuls in one loop: the second contracts the first one's output axis."""

    scores: MatmulFact
    values: MatmulFact


@dataclass(frozen=True)
class PointwiseFact:
    """A function without matmuls, reductions and atomics."""

    total: int | None
    """Elements over all tiled axes, where known."""
    slab: int
    """Untiled elements per tiled element."""
    storage_bytes: int
    """Bytes moved per element, over all accesses."""
    contiguous_blocks: tuple[str, ...]
    """Blocks along which some access has stride 1."""
    num_transcendentals: int


@dataclass(frozen=True)
class Facts:
    """Everything known about a function."""

    matmuls: tuple[MatmulFact, ...]
    reductions: tuple[ReductionFact, ...]
    accesses: tuple[AccessFact, ...]
    pointwise: PointwiseFact | None
    epilogue: MatmulWithReductionEpilogueFact | None
    attention: AttentionFact | None


def axis_of(structure: Structure, dim: Dim) -> Axis:
    """The axis of a dimension."""
    symbol = dim.symbol
    block = symbol if symbol is not None and structure.function.is_block(symbol) else None
    return Axis(dim, block, structure.extent(dim))


def _matmul_fact(structure: Structure, site: Site, dot: Dot) -> MatmulFact:
    lhs, rhs = dot.lhs.tile, dot.rhs.tile
    return MatmulFact(
        m=axis_of(structure, lhs.shape[-2]),
        n=axis_of(structure, rhs.shape[-1]),
        k=axis_of(structure, lhs.shape[-1]),
        batch=axis_of(structure, dot.result.tile.shape[0]) if lhs.rank == 3 else None,
        lhs_dtype=lhs.dtype,
        rhs_dtype=rhs.dtype,
        acc_dtype=dot.result.tile.dtype,
        precision=dot.precision,
        is_looped=site.innermost is not None,
        min_k=least_contracted(dot, structure.definitions),
        loc=dot.loc,
    )


def _reduction_facts(structure: Structure, rollable: tuple[Dim, ...]) -> tuple[ReductionFact, ...]:
    by_dim: dict[Dim, list[Combining]] = {}
    # A scan holds its rows like a reduction that cannot be rolled.
    for kind in (Reduce, Scan, ReduceWith, ScanWith, Sort):
        for op in structure.ops(kind):
            by_dim.setdefault(_operand(op).shape[op.axis], []).append(op)
    return tuple(
        _reduction_fact(structure, dim, ops, rollable)
        for dim, ops in by_dim.items()
        if not dim.is_one
    )


def _operand(op: Combining) -> TileType:
    return (op.xs[0] if isinstance(op, (ReduceWith, ScanWith)) else op.x).tile


def _function(op: Combining) -> str:
    return op.kind if isinstance(op, (Reduce, Scan)) else op.name


def _reduction_fact(
    structure: Structure, dim: Dim, ops: list[Combining], rollable: tuple[Dim, ...]
) -> ReductionFact:
    axis = axis_of(structure, dim)
    stores = [op for op in structure.ops(Store) if dim in op.value.tile.shape]
    kind = "rollable" if dim in rollable else "persistent"
    if any(structure.function.is_block(symbol) for symbol in dim.symbols):
        kind = "tile"
    return ReductionFact(
        axis=axis,
        kind=kind,
        functions=tuple(dict.fromkeys(_function(op) for op in ops)),
        dtype=_operand(ops[0]).dtype,
        is_reread=len(ops) + len(stores) > 1,
        loc=ops[0].loc,
    )


def _compose_epilogue(
    matmuls: tuple[MatmulFact, ...], reductions: tuple[ReductionFact, ...]
) -> MatmulWithReductionEpilogueFact | None:
    if len(matmuls) != 1 or len(reductions) != 1:
        return None
    (matmul,), (reduction,) = matmuls, reductions
    is_output_row = reduction.axis.dim == matmul.n.dim and matmul.n.block is None
    if not is_output_row or matmul.m.block is None or matmul.n.extent is None:
        return None
    return MatmulWithReductionEpilogueFact(matmul, reduction)


def _compose_attention(matmuls: tuple[MatmulFact, ...]) -> AttentionFact | None:
    for first in matmuls:
        for second in matmuls:
            is_chain = first is not second and first.n.block and first.n == second.k
            if is_chain and first.m == second.m and second.is_looped:
                return AttentionFact(first, second)
    return None


def _pointwise_fact(structure: Structure, accesses: tuple[AccessFact, ...]) -> PointwiseFact:
    outermost = [b for b in structure.block_slots if b not in structure.outer_bounds]
    tiled = [structure.extent(Dim.of(block)) for block in outermost]
    known = [extent for extent in tiled if extent is not None]
    stores = [fact for fact in accesses if fact.kind == "store"] or list(accesses)
    slab = max((fact.untiled_elements(structure) for fact in stores), default=1)
    functions = [op.function for op in structure.ops(Elementwise)]
    contiguous = [fact.contiguous_block for fact in accesses if fact.contiguous_block]
    return PointwiseFact(
        total=prod(known) if len(known) == len(tiled) else None,
        slab=slab,
        storage_bytes=sum(fact.dtype.itemsize for fact in accesses if not fact.is_scalar),
        contiguous_blocks=tuple(dict.fromkeys(contiguous)),
        num_transcendentals=sum(function.is_transcendental for function in functions),
    )


def collect_facts(structure: Structure, rollable: tuple[Dim, ...] = ()) -> Facts:
    """All facts; ``rollable`` are the dimensions whose reductions may run in chunks."""
    matmuls = tuple(
        _matmul_fact(structure, site, site.op)
        for site in structure.sites
        if isinstance(site.op, Dot)
    )
    reductions = _reduction_facts(structure, rollable)
    accesses = collect_access_facts(structure)
    is_pointwise = not matmuls and not reductions and not structure.atomics
    return Facts(
        matmuls=matmuls,
        reductions=reductions,
        accesses=accesses,
        pointwise=_pointwise_fact(structure, accesses) if is_pointwise else None,
        epilogue=_compose_epilogue(matmuls, reductions),
        attention=_compose_attention(matmuls),
    )
