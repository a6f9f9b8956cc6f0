"""Facts about matrix products, reductions, scans and sorts, and about accumulators."""

from __future__ import annotations

from dataclasses import dataclass

from tilesmith.analysis.product_operands import least_contracted
from tilesmith.diagnostics.location import SourceLocation
from tilesmith.dtypes import DType
from tilesmith.ir.axis_roles import Along
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.memory import Load, Store
from tilesmith.ir.types import Dim, Value
from tilesmith.schedule.facts.dataflow import Dataflow, access_text
from tilesmith.schedule.facts.extents import Axis, Extents
from tilesmith.schedule.facts.outline import FunctionOutline, Site
from tilesmith.schedule.facts.work import UNCOUNTED, Count, Counter, rate_class


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
    text: str = ""
    """``acc[tile_m, tile_n] += x[tile_m, tile_k] @ y[tile_k, tile_n]``."""
    loop: tuple[str, ...] = ()
    """The axes of the sequential loop around it."""
    flops: Count = UNCOUNTED

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

    @property
    def rate_class(self) -> str:
        """What decides how fast a device multiplies these: ``bf16``, ``tf32``, ``f32``, ..."""
        return rate_class(self.lhs_dtype, self.rhs_dtype, self.precision)


@dataclass(frozen=True)
class MatmulCollector:
    """Makes the facts of one function's products."""

    extents: Extents
    counter: Counter
    flow: Dataflow

    def collect(self) -> tuple[MatmulFact, ...]:
        """One fact for each ``dot``, in program order."""
        sites = self.extents.outline.sites
        return tuple(self._fact(site, site.op) for site in sites if isinstance(site.op, Dot))

    def _fact(self, site: Site, dot: Dot) -> MatmulFact:
        lhs, rhs, axis = dot.lhs.tile, dot.rhs.tile, self.extents.axis
        loop = site.innermost
        return MatmulFact(
            m=axis(lhs.shape[-2]),
            n=axis(rhs.shape[-1]),
            k=axis(lhs.shape[-1]),
            batch=axis(dot.result.tile.shape[0]) if lhs.rank == 3 else None,
            lhs_dtype=lhs.dtype,
            rhs_dtype=rhs.dtype,
            acc_dtype=dot.result.tile.dtype,
            precision=dot.precision,
            is_looped=loop is not None,
            min_k=least_contracted(dot, self.extents.outline.definitions),
            loc=dot.loc,
            text=self._text(dot),
            loop=() if loop is None else tuple(block or "index" for block in loop.blocks),
            flops=self.counter.elements(site, (*lhs.shape, rhs.shape[-1])).times(2),
        )

    def _text(self, dot: Dot) -> str:
        sign = "=" if dot.acc is None else "+="
        name = self.flow.name(dot.result) or "product"
        shape = self.extents.shape_text(dot.result.tile.shape)
        return f"{name}{shape} {sign} {self._operand(dot.lhs)} @ {self._operand(dot.rhs)}"

    def _operand(self, value: Value) -> str:
        """The load it comes from; a computed tile's name, if it has one, and shape."""
        origin, is_permuted = self.flow.origin(value)
        if isinstance(origin, Load):
            return access_text(self.extents.outline, origin) + (".T" if is_permuted else "")
        return self.flow.name(value) + self.extents.shape_text(value.tile.shape)


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
    text: str = ""
    """What is reduced first: ``acc[tile_m, 400]``."""


@dataclass(frozen=True)
class AccumulatorFact:
    """A tile that a sequential loop carries from one iteration to the next."""

    name: str
    """The user's variable; "" where it has none."""
    axes: tuple[Axis, ...]
    dtype: DType
    loop: tuple[str, ...]
    """The axes of the loop."""
    slot: int
    """The loop's number."""
    loc: SourceLocation
    text: str = ""

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return self.dtype.itemsize

    @property
    def blocks(self) -> tuple[str | None, ...]:
        """The block of each axis."""
        return tuple(axis.block for axis in self.axes)


def reductions_by_dim(outline: FunctionOutline) -> dict[Dim, list[Operation]]:
    """Ops whose lanes meet along an axis of more than one element, by the axis."""
    found: dict[Dim, list[Operation]] = {}
    # A scan holds its rows like a reduction that cannot be rolled.
    for op in (site.op for site in outline.sites):
        if isinstance(op.form, Along):
            shape = op.form.numbered(op).tile.shape
            found.setdefault(shape[op.form.axis(op)], []).append(op)
    return {dim: ops for dim, ops in found.items() if not dim.is_one}


def collect_reductions(
    extents: Extents, flow: Dataflow, rollable: tuple[Dim, ...]
) -> tuple[ReductionFact, ...]:
    """One fact for each axis."""
    outline, facts = extents.outline, list[ReductionFact]()
    for dim, ops in reductions_by_dim(outline).items():
        first = ops[0].form.numbered(ops[0])
        stores = [op for op in outline.ops(Store) if dim in op.value.tile.shape]
        is_tiled = any(map(outline.function.is_block, dim.symbols))
        functions = [str(op.attributes().get("kind", op.name)) for op in ops]
        facts.append(
            ReductionFact(
                axis=extents.axis(dim),
                kind="tile" if is_tiled else "rollable" if dim in rollable else "persistent",
                functions=tuple(dict.fromkeys(functions)),
                dtype=first.tile.dtype,
                is_reread=len(ops) + len(stores) > 1,
                loc=ops[0].loc,
                text=tile_text(extents, flow, first),
            )
        )
    return tuple(facts)


def tile_text(extents: Extents, flow: Dataflow, value: Value) -> str:
    """A tile by the name of its variable and its shape, else by the load it comes from."""
    name = flow.name(value)
    origin, _ = flow.origin(value)
    if not name and isinstance(origin, Load):
        return access_text(extents.outline, origin)
    return (name or "tile") + extents.shape_text(value.tile.shape)


def collect_accumulators(extents: Extents, flow: Dataflow) -> tuple[AccumulatorFact, ...]:
    """One fact for each carried tile, loop by loop."""
    return tuple(
        AccumulatorFact(
            name=flow.name(value),
            axes=tuple(map(extents.axis, value.tile.shape)),
            dtype=value.tile.dtype,
            loop=tuple(block or "index" for block in loop.blocks),
            slot=loop.slot,
            loc=value.loc if value.loc.line else loop.loc,
            text=tile_text(extents, flow, value),
        )
        for loop in extents.outline.loops
        for value in loop.carried
        if value.tile.rank
    )
