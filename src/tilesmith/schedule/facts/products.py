"""Facts about matrix products: axes, element types, and the operands as the user writes them."""

from __future__ import annotations

from dataclasses import dataclass

from tilesmith.analysis.product_operands import least_contracted
from tilesmith.diagnostics.location import SourceLocation
from tilesmith.dtypes import DType
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.memory import Load
from tilesmith.ir.types import Value
from tilesmith.schedule.facts.dataflow import Dataflow
from tilesmith.schedule.facts.extents import Axis, Extents
from tilesmith.schedule.facts.index_patterns import access_text
from tilesmith.schedule.facts.outline import Site
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


class MatmulCollector:
    """Makes the facts of one function's products."""

    def __init__(self, extents: Extents, counter: Counter, flow: Dataflow) -> None:
        self._extents = extents
        self._outline = extents.outline
        self._counter = counter
        self._flow = flow

    def collect(self) -> tuple[MatmulFact, ...]:
        """One fact for each ``dot``, in program order."""
        sites = self._outline.sites
        return tuple(self._fact(site, site.op) for site in sites if isinstance(site.op, Dot))

    def _fact(self, site: Site, dot: Dot) -> MatmulFact:
        lhs, rhs, axis = dot.lhs.tile, dot.rhs.tile, self._extents.axis
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
            min_k=least_contracted(dot, self._outline.definitions),
            loc=dot.loc,
            text=self._text(dot),
            loop=() if loop is None else tuple(block or "index" for block in loop.blocks),
            flops=self._counter.elements(site, (*lhs.shape, rhs.shape[-1])).times(2),
        )

    def _text(self, dot: Dot) -> str:
        sign = "=" if dot.acc is None else "+="
        name = self._flow.name(dot.result) or "product"
        shape = self._extents.shape_text(dot.result.tile.shape)
        return f"{name}{shape} {sign} {self.operand(dot.lhs)} @ {self.operand(dot.rhs)}"

    def operand(self, value: Value) -> str:
        """An operand: the load it comes from, else its name and shape."""
        origin, is_permuted = self._flow.origin(value)
        if isinstance(origin, Load):
            return access_text(self._outline, origin) + (".T" if is_permuted else "")
        return value_text(self._extents, self._flow, value)


def value_text(extents: Extents, flow: Dataflow, value: Value) -> str:
    """A computed tile by its name and shape; by its shape alone when it has no name."""
    return flow.name(value) + extents.shape_text(value.tile.shape)
