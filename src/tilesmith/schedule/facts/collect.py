"""Facts about a function, from its IR, in the user's names: what it multiplies, reduces and moves.

Heuristics and resource estimates read these, never op patterns. Composed facts hold simple ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tilesmith.ir.types import ONE, Dim
from tilesmith.schedule.facts.accesses import AccessCollector, AccessFact
from tilesmith.schedule.facts.dataflow import Dataflow
from tilesmith.schedule.facts.extents import Axis, Extents
from tilesmith.schedule.facts.fact_set import (
    AttentionFact,
    FactSet,
    MatmulWithReductionEpilogueFact,
    PointwiseFact,
    compose_attention,
    compose_epilogue,
    fingerprint,
    pointwise_fact,
    shape_class,
)
from tilesmith.schedule.facts.outline import FunctionOutline
from tilesmith.schedule.facts.products import (
    AccumulatorFact,
    MatmulCollector,
    MatmulFact,
    ReductionFact,
    collect_accumulators,
    collect_reductions,
)
from tilesmith.schedule.facts.text import render_facts
from tilesmith.schedule.facts.work import Counter, collect_work

__all__ = [
    "AccumulatorFact",
    "AttentionFact",
    "Axis",
    "Facts",
    "MatmulFact",
    "MatmulWithReductionEpilogueFact",
    "PointwiseFact",
    "ReductionFact",
    "collect_facts",
]


@dataclass(frozen=True)
class FactSource:
    """What facts were derived from; with other runtime sizes they are derived again."""

    outline: FunctionOutline
    rollable: tuple[Dim, ...]
    sizes: Mapping[str, int]


@dataclass(frozen=True, repr=False)
class Facts(FactSet):
    """Everything known about a function. ``print(facts)`` shows it in the user's names."""

    source: FactSource | None = field(default=None, compare=False)

    def with_sizes(self, sizes: Mapping[str, int]) -> Facts:
        """The facts of a launch with these runtime sizes, by parameter name."""
        source = self.source
        if source is None or not any(source.sizes.get(k) != v for k, v in sizes.items()):
            return self
        merged = {**source.sizes, **sizes}
        return collect_facts(source.outline, source.rollable, merged)

    def shape_class(self) -> str:
        """A short text that kernels of about the same shape share: extents as powers of two."""
        return shape_class(self)

    def fingerprint(self) -> str:
        """Changes whenever a fact does; runtime sizes stand by their names."""
        return fingerprint(self)

    def __str__(self) -> str:
        return render_facts(self)

    __repr__ = __str__


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


def collect_facts(
    outline: FunctionOutline,
    rollable: tuple[Dim, ...] = (),
    sizes: Mapping[str, int] | None = None,
) -> Facts:
    """All facts; ``rollable`` are the dimensions whose reductions may run in chunks.

    ``sizes`` are values of runtime sizes, by parameter name; numbers then are those of a launch
    with them.
    """
    extents, flow = Extents(outline, sizes), Dataflow(outline)
    counter = Counter(extents)
    matmuls = MatmulCollector(extents, counter, flow).collect()
    reductions = collect_reductions(extents, flow, rollable)
    accesses = AccessCollector(extents, counter, flow).collect()
    is_pointwise = not matmuls and not reductions and not outline.atomics
    return Facts(
        matmuls=matmuls,
        reductions=reductions,
        accesses=accesses,
        pointwise=pointwise_fact(extents, accesses) if is_pointwise else None,
        epilogue=compose_epilogue(outline, flow, matmuls, reductions),
        attention=compose_attention(matmuls),
        accumulators=collect_accumulators(extents, flow),
        axes=_all_axes(extents, accesses),
        work=collect_work(extents, counter),
        name=outline.function.name,
        source=FactSource(outline, rollable, dict(sizes or {})),
    )
