"""Short, stable names of facts: one for equal facts, one for kernels of about the same shape.

Lines of the source do not matter. In the exact name a runtime size stands by its name, since one
kernel serves all its values; the shape class has what it is known to be.
"""

from __future__ import annotations

from hashlib import sha256

from tilesmith.schedule.access_facts import AccessFact
from tilesmith.schedule.extents import Axis
from tilesmith.schedule.fact_set import FactSet
from tilesmith.schedule.schedule import next_power_of_2


def shape_class(facts: FactSet) -> str:
    """Axes with their extents rounded up to powers of two, and tensors with their types.

    Example:
        ``tile_m=4096 tile_n=4096 tile_k=512; x:bf16 y:bf16 out:bf16``
    """
    axes = [f"{_label(axis)}={_rounded(axis)}" for axis in facts.axes]
    return f"{' '.join(axes)}; {' '.join(_tensors(facts))}"


def fingerprint(facts: FactSet) -> str:
    """16 hexadecimal digits."""
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
