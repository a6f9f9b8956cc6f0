"""The facts of one function as data, and short, stable names of them.

``fingerprint`` is the same for equal facts, ``shape_class`` for kernels of about the same shape.
Lines of the source do not matter. In the fingerprint a runtime size stands by its name, since one
kernel serves all its values; the shape class has what it is known to be.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256

from tilesmith.schedule.facts.accesses import AccessFact, Traffic, tensor_traffic
from tilesmith.schedule.facts.composed import (
    AttentionFact,
    MatmulWithReductionEpilogueFact,
    PointwiseFact,
)
from tilesmith.schedule.facts.extents import Axis
from tilesmith.schedule.facts.products import MatmulFact
from tilesmith.schedule.facts.reductions import AccumulatorFact, ReductionFact
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
