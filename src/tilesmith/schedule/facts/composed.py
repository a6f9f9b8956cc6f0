"""Facts that hold simple ones, and the fact of a kernel that has none of those.

A product with a reduction epilogue is composed only when exactly one product and reductions over
exactly one axis, the product's untiled output axis, occur.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tilesmith.ir.ops.elementwise import Elementwise
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.types import Dim
from tilesmith.schedule.facts.accesses import AccessFact
from tilesmith.schedule.facts.dataflow import Dataflow
from tilesmith.schedule.facts.extents import Extents
from tilesmith.schedule.facts.outline import FunctionOutline
from tilesmith.schedule.facts.products import MatmulFact
from tilesmith.schedule.facts.reductions import ReductionFact, reductions_by_dim


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
