"""The set of facts of one function, as data: what it multiplies, reduces, carries and moves."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from tilesmith.schedule.access_facts import AccessFact, Traffic, tensor_traffic
from tilesmith.schedule.composed_facts import (
    AttentionFact,
    MatmulWithReductionEpilogueFact,
    PointwiseFact,
)
from tilesmith.schedule.extents import Axis
from tilesmith.schedule.matmul_facts import MatmulFact
from tilesmith.schedule.reduction_facts import AccumulatorFact, ReductionFact
from tilesmith.schedule.work_facts import ELEMENTWISE, MATMUL, TRANSCENDENTAL, WorkFact

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
