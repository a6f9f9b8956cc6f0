"""Facts about a function, from its IR, in the user's names: what it multiplies, reduces and moves.

Heuristics and resource estimates read these, never op patterns. Composed facts hold simple ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from tilesmith.ir.ops.elementwise import Elementwise
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.types import ONE, Dim
from tilesmith.schedule.facts import products
from tilesmith.schedule.facts.accesses import AccessCollector, AccessFact
from tilesmith.schedule.facts.dataflow import Dataflow
from tilesmith.schedule.facts.extents import Axis, Extents
from tilesmith.schedule.facts.fact_set import (
    AttentionFact,
    Facts,
    MatmulWithReductionEpilogueFact,
    PointwiseFact,
)
from tilesmith.schedule.facts.outline import FunctionOutline, known_product
from tilesmith.schedule.facts.work import Counter, collect_work

NO_SIZES: Mapping[str, int] = {}


def _all_axes(extents: Extents, accesses: tuple[AccessFact, ...]) -> tuple[Axis, ...]:
    outline = extents.outline
    found: dict[tuple[str, Dim], Axis] = {}
    for axis in (axis for loop in outline.all_loops for axis in outline.axes_of(loop)):
        if axis.block:
            found[("", Dim.of(axis.block))] = extents.axis(Dim.of(axis.block))
        else:
            length, name = extents.of_loop(axis), axis.index.name
            found[(name, ONE)] = Axis(ONE, None, length.count, length, name)
    for dim in (dim for fact in accesses for dim in fact.shape if not dim.is_one):
        found.setdefault(("", dim), extents.axis(dim))
    return tuple(found.values())


def _compose_epilogue(
    outline: FunctionOutline,
    flow: Dataflow,
    matmuls: tuple[products.MatmulFact, ...],
    reductions: tuple[products.ReductionFact, ...],
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


def _reduces_output(outline: FunctionOutline, flow: Dataflow, matmul: products.MatmulFact) -> bool:
    """Whether what is reduced over axes like N is the product, row by row, when it is complete."""
    site = next(site for site in outline.sites if isinstance(site.op, Dot))
    outputs = {(id(op), value) for op, value in flow.uses(site.op.result)}
    ops = products.reductions_by_dim(outline)[matmul.n.dim]
    operands = [op.form.numbered(op) for op in ops]
    if not all((id(op), operand) in outputs for op, operand in zip(ops, operands)):
        return False
    has_rows = all(matmul.m.dim in operand.tile.shape for operand in operands)
    loop = site.innermost
    is_partial = loop is not None and matmul.k.block in loop.blocks
    around = [outline.loops_around(op) for op in ops]
    return has_rows and not (is_partial and any(loop in loops for loops in around))


def _compose_attention(matmuls: tuple[products.MatmulFact, ...]) -> AttentionFact | None:
    for first in matmuls:
        for second in matmuls:
            is_chain = first is not second and first.n.block and first.n == second.k
            if is_chain and first.m == second.m and second.is_looped:
                return AttentionFact(first, second)
    return None


def _pointwise_fact(extents: Extents, accesses: tuple[AccessFact, ...]) -> PointwiseFact:
    outline = extents.outline
    outermost = [b for b in outline.block_slots if b not in outline.outer_bounds]
    total = known_product(extents.of_dim(Dim.of(block)).count for block in outermost)
    stores = [fact for fact in accesses if fact.kind == "store"] or list(accesses)
    slab = max((fact.untiled_elements(outline) for fact in stores), default=1)
    contiguous = [fact.contiguous_block for fact in accesses if fact.contiguous_block]
    # Lookups and factors of rows move little.
    axes = [sum(not dim.is_one for dim in fact.shape) for fact in accesses]
    return PointwiseFact(
        total=total,
        slab=slab,
        storage_bytes=sum(f.dtype.itemsize for f, n in zip(accesses, axes) if n == max(axes) > 0),
        contiguous_blocks=tuple(dict.fromkeys(contiguous)),
        num_transcendentals=sum(op.function.is_transcendental for op in outline.ops(Elementwise)),
    )


def collect_facts(
    outline: FunctionOutline, rollable: tuple[Dim, ...] = (), sizes: Mapping[str, int] = NO_SIZES
) -> Facts:
    """All facts; ``rollable`` are the dimensions whose reductions may run in chunks.

    ``sizes`` are values of runtime sizes, by parameter name; numbers then are those of a launch
    with them.
    """
    extents, flow = Extents(outline, sizes), Dataflow(outline)
    counter = Counter(extents)
    matmuls = products.MatmulCollector(extents, counter, flow).collect()
    reductions = products.collect_reductions(extents, flow, rollable)
    accesses = AccessCollector(extents, counter, flow).collect()
    is_pointwise = not matmuls and not reductions and not outline.atomics
    return Facts(
        matmuls=matmuls,
        reductions=reductions,
        accesses=accesses,
        pointwise=_pointwise_fact(extents, accesses) if is_pointwise else None,
        epilogue=_compose_epilogue(outline, flow, matmuls, reductions),
        attention=_compose_attention(matmuls),
        accumulators=products.collect_accumulators(extents, flow),
        axes=_all_axes(extents, accesses),
        work=collect_work(extents, counter),
        name=outline.function.name,
        sizes=sizes,
        recollect=partial(collect_facts, outline, rollable),
    )
