"""The facts of one function as data, those composed of simpler ones, and short names of them.

``fingerprint`` is the same for equal facts, ``shape_class`` for kernels of about the same shape.
Lines of the source do not matter. In the fingerprint a runtime size stands by its name, since one
kernel serves all its values; the shape class has what it is known to be.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from math import prod

from tilesmith.ir.ops.elementwise import Elementwise
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.types import Dim
from tilesmith.schedule.facts.accesses import AccessFact, Traffic, tensor_traffic
from tilesmith.schedule.facts.dataflow import Dataflow
from tilesmith.schedule.facts.extents import Axis, Extents
from tilesmith.schedule.facts.outline import FunctionOutline
from tilesmith.schedule.facts.products import (
    AccumulatorFact,
    MatmulFact,
    ReductionFact,
    reductions_by_dim,
)
from tilesmith.schedule.facts.work import ELEMENTWISE, MATMUL, TRANSCENDENTAL, WorkFact
from tilesmith.schedule.schedule import next_power_of_2

NO_WORK = WorkFact(())


@dataclass(frozen=True)
class FactSet:
    """Everything known about a function."""

    matmuls: tuple[MatmulFact, ...]
    reductions: tuple[ReductionFact, ...]
    accesses: tuple[AccessFact, ...]
    pointwise: PointwiseFact | None
    epilogue: MatmulWithReductionEpilogueFact | None
    attention: AttentionFact | None
    accumulators: tuple[AccumulatorFact, ...] = ()
    axes: tuple[Axis, ...] = ()
    """All axes of loops and accesses, in the order in which they occur."""
    work: WorkFact = NO_WORK
    name: str = ""
    """The function's."""

    @property
    def flops(self) -> dict[str, float] | None:
        """Operations in matrix products by rate class (``bf16``, ``tf32``, ...), where known."""
        return self.work.operations(MATMUL)

    @property
    def elementwise_ops(self) -> float | None:
        """Elementwise operations of all types, the transcendental ones not counted."""
        return self.work.total(ELEMENTWISE)

    @property
    def transcendental_ops(self) -> float | None:
        """exp, log, tanh and the like."""
        return self.work.total(TRANSCENDENTAL)

    @cached_property
    def traffic(self) -> Traffic:
        """Bytes read and written at least."""
        return tensor_traffic(self.accesses)

    @property
    def bytes(self) -> int | None:
        """Bytes that must be moved: every tensor element that is used, once each way."""
        return self.traffic.total


def shape_class(facts: FactSet) -> str:
    """Axes with their extents rounded up to powers of two, and tensors with their types.

    Example:
        ``tile_m=4096 tile_n=4096 tile_k=512; x:bf16 y:bf16 out:bf16``
    """
    axes = [f"{_label(axis)}={_rounded(axis)}" for axis in facts.axes]
    return f"{' '.join(axes)}; {' '.join(_tensors(facts))}"


def fingerprint(facts: FactSet) -> str:
    """16 hexadecimal digits that equal facts share."""
    axes = [f"axis {_label(axis)} {_exact(axis)}" for axis in facts.axes]
    products = [
        f"matmul {[str(axis.dim) for axis in fact.axes]} {fact.lhs_dtype} {fact.rhs_dtype}"
        f" {fact.acc_dtype} {fact.precision} {fact.loop}"
        for fact in facts.matmuls
    ]
    sums = [
        f"reduction {fact.axis.dim} {fact.kind} {fact.functions} {fact.dtype} {fact.is_reread}"
        for fact in facts.reductions
    ]
    carried = [
        f"accumulator {[str(axis.dim) for axis in fact.axes]} {fact.dtype} {fact.loop}"
        for fact in facts.accumulators
    ]
    accesses = [_access_line(fact) for fact in facts.accesses]
    lines = [*axes, *products, *sums, *carried, *accesses]
    return sha256("\n".join(lines).encode()).hexdigest()[:16]


def _label(axis: Axis) -> str:
    is_whole = axis.dim.constant is not None and not axis.dim.is_one
    return ":" if is_whole else str(axis)


def _rounded(axis: Axis) -> str:
    return "?" if axis.extent is None else str(next_power_of_2(axis.extent) if axis.extent else 0)


def _exact(axis: Axis) -> str:
    return str(axis.extent) if axis.length.is_exact else axis.length.name


def _tensors(facts: FactSet) -> list[str]:
    return list(dict.fromkeys(f"{fact.tensor}:{fact.dtype}" for fact in facts.accesses))


def _access_line(fact: AccessFact) -> str:
    shape = [str(dim) for dim in fact.shape]
    kinds = [(pattern.kind, str(pattern.dim)) for pattern in fact.patterns]
    return (
        f"{fact.kind} {fact.slot} {fact.tensor} {fact.dtype} {shape} {fact.strides} {kinds}"
        f" {fact.has_mask}"
    )


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


def compose_epilogue(
    outline: FunctionOutline,
    flow: Dataflow,
    matmuls: tuple[MatmulFact, ...],
    reductions: tuple[ReductionFact, ...],
) -> MatmulWithReductionEpilogueFact | None:
    """The product and the reductions of its rows, if that is what the kernel is."""
    if len(matmuls) != 1 or len(reductions) != 1:
        return None
    (matmul,), (reduction,) = matmuls, reductions
    is_output_row = reduction.axis.dim == matmul.n.dim and matmul.n.block is None
    if not is_output_row or matmul.m.block is None or matmul.n.extent is None:
        return None
    is_epilogue = _reduces_output(outline, flow, matmul)
    return MatmulWithReductionEpilogueFact(matmul, reduction) if is_epilogue else None


def _reduces_output(outline: FunctionOutline, flow: Dataflow, matmul: MatmulFact) -> bool:
    """Whether what is reduced over axes like N is the product, row by row, when it is complete."""
    site = next(site for site in outline.sites if isinstance(site.op, Dot))
    outputs = {(id(op), value) for op, value in flow.uses(site.op.result)}
    ops = reductions_by_dim(outline)[matmul.n.dim]
    operands = [op.form.numbered(op) for op in ops]
    if not all((id(op), operand) in outputs for op, operand in zip(ops, operands)):
        return False
    has_rows = all(matmul.m.dim in operand.tile.shape for operand in operands)
    loop = site.innermost
    is_partial = loop is not None and matmul.k.block in loop.blocks
    around = [outline.loops_around(op) for op in ops]
    return has_rows and not (is_partial and any(loop in loops for loops in around))


def compose_attention(matmuls: tuple[MatmulFact, ...]) -> AttentionFact | None:
    """Two products in a chain, if there are."""
    for first in matmuls:
        for second in matmuls:
            is_chain = first is not second and first.n.block and first.n == second.k
            if is_chain and first.m == second.m and second.is_looped:
                return AttentionFact(first, second)
    return None


def pointwise_fact(extents: Extents, accesses: tuple[AccessFact, ...]) -> PointwiseFact:
    """The fact of a kernel without products, reductions and atomics."""
    outline = extents.outline
    outermost = [b for b in outline.block_slots if b not in outline.outer_bounds]
    tiled = [extents.of_dim(Dim.of(block)).count for block in outermost]
    known = [extent for extent in tiled if extent is not None]
    stores = [fact for fact in accesses if fact.kind == "store"] or list(accesses)
    slab = max((fact.untiled_elements(outline) for fact in stores), default=1)
    functions = [op.function for op in outline.ops(Elementwise)]
    contiguous = [fact.contiguous_block for fact in accesses if fact.contiguous_block]
    return PointwiseFact(
        total=prod(known) if len(known) == len(tiled) else None,
        slab=slab,
        storage_bytes=sum(fact.dtype.itemsize for fact in accesses if not fact.is_scalar),
        contiguous_blocks=tuple(dict.fromkeys(contiguous)),
        num_transcendentals=sum(function.is_transcendental for function in functions),
    )
