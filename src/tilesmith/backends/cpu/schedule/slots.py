"""The slots of the ``cpu_*`` keys, and what of a function decides them: balance, large outputs."""

from __future__ import annotations

from math import prod

from tilesmith.ir.ops.control_flow import Grid, Loop, While
from tilesmith.ir.ops.memory import Atomic, Load, Store
from tilesmith.ir.types import TensorType
from tilesmith.schedule.facts.dataflow import classify_index
from tilesmith.schedule.facts.fact_set import Facts
from tilesmith.schedule.facts.outline import FunctionOutline
from tilesmith.schedule.space.fragments import (
    BooleanFragment,
    EnumFragment,
    Fragment,
    IntegerFragment,
    PowerOfTwoFragment,
)
from tilesmith.schedule.space.slots import Slot

MAX_THREADS = 1024
STREAMED_BYTES = 64 << 20
"""Outputs from here on do not stay in any cache, so stores may as well bypass them."""


def scalar_slots(outline: FunctionOutline, facts: Facts) -> dict[str, Slot]:
    """One slot for each key."""
    is_uneven = has_uneven_programs(outline)
    is_streamed = largest_streamed_bytes(outline) >= STREAMED_BYTES
    schedules = EnumFragment(("static", "dynamic"))
    unrolls = PowerOfTwoFragment(1, 8, 4)
    return {
        "cpu_threads": _slot("cpu_threads", IntegerFragment(0, MAX_THREADS), 0, False),
        "cpu_unroll": _slot("cpu_unroll", unrolls, 4, bool(facts.reductions)),
        # Smaller outputs are likely to be read from the cache by whatever comes next, which a
        # search does not see.
        "cpu_streaming_stores": _slot(
            "cpu_streaming_stores", BooleanFragment(), is_streamed, is_streamed
        ),
        "cpu_schedule": _slot(
            "cpu_schedule", schedules, "dynamic" if is_uneven else "static", bool(outline.grids)
        ),
    }


def program_order(grid: Grid, facts: Facts) -> list[int]:
    """Axes from the fastest on: a thread's programs go along memory, or stay with one matrix."""
    sides = {axis.block for fact in facts.matmuls for axis in (fact.m, fact.n)}
    fast = [i for i, block in enumerate(grid.blocks) if block and block in sides]
    slow = [i for i in range(len(grid.blocks)) if i not in fast]
    return fast + slow[::-1]


def _slot(name: str, valid: Fragment, default: object, is_searched: bool) -> Slot:
    return Slot(name, valid, valid if is_searched else EnumFragment((default,)), default)


def has_uneven_programs(outline: FunctionOutline) -> bool:
    """Whether the length of some loop depends on loaded data or on where its program stands."""
    if any(isinstance(site.op, While) for site in outline.sites):
        return True
    return any(
        _is_uneven(outline, loop, position)
        for loop in outline.loops
        for position in range(len(loop.blocks))
    )


def _is_uneven(outline: FunctionOutline, loop: Loop, position: int) -> bool:
    bounds = (loop.begins[position], loop.ends[position])
    if any(map(outline.is_data_dependent, bounds)):
        return True
    # The tile of an outer block has the same length wherever it begins.
    if outline.find_length_bound(loop, position) is not None:
        return False
    indices = {axis.index for grid in outline.grids for axis in outline.axes_of(grid)}
    return any(not indices.isdisjoint(outline.roots(bound)) for bound in bounds)


def largest_streamed_bytes(outline: FunctionOutline) -> int:
    """The size of the largest output of constant shape that is only ever stored, row by row."""
    used = {
        site.op.tensor.tensor.alias for site in outline.sites if isinstance(site.op, (Load, Atomic))
    }
    stores = [op for op in outline.ops(Store) if op.tensor.tensor.alias not in used]
    return max(
        (_known_bytes(op.tensor.tensor) for op in stores if _is_plain(outline, op)), default=0
    )


def _is_plain(outline: FunctionOutline, op: Store) -> bool:
    patterns = [classify_index(outline, index) for index in op.indices]
    if op.mask is not None or op.bases is not None:
        return False
    if any(pattern.kind == "gather" for pattern in patterns):
        return False
    strides = zip(op.tensor.tensor.strides, patterns)
    return any(stride == 1 and pattern.kind != "scalar" for stride, pattern in strides)


def _known_bytes(tensor: TensorType) -> int:
    sizes = [size for size in tensor.shape if isinstance(size, int)]
    return prod(sizes) * tensor.dtype.itemsize if len(sizes) == tensor.rank else 0
