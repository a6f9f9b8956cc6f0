"""What the CPU backend decides about schedules: sizes, keys, heuristics, times."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from math import prod
from typing import Any

from typing_extensions import override

from tilesmith.backends.cpu.schedule import heuristics, matmul
from tilesmith.backends.cpu.schedule.heuristics import CpuSeed, complete_blocks, longest
from tilesmith.backends.cpu.schedule.time_model import CpuModel, device_of
from tilesmith.ir.ops.control_flow import Grid, Loop, While
from tilesmith.ir.ops.memory import Atomic, Load, Store
from tilesmith.ir.types import TensorType
from tilesmith.schedule.facts.dataflow import classify_index
from tilesmith.schedule.facts.fact_set import Facts
from tilesmith.schedule.facts.outline import FunctionOutline
from tilesmith.schedule.model.estimates import Device
from tilesmith.schedule.rules import ScheduleRules, Seed, TargetedKernel
from tilesmith.schedule.space import fragments
from tilesmith.schedule.space.fragments import is_power_of_two
from tilesmith.schedule.space.sizes import KernelSlots, SizeRules, common_lists
from tilesmith.schedule.space.slots import Slot

STEPS = (0.25, 0.5, 1.0, 2.0, 4.0)
MAX_AXES = 3


HEURISTICS: tuple[tuple[str, Callable[[TargetedKernel], Sequence[CpuSeed]]], ...] = (
    ("matmul with reduction epilogue", matmul.reduction_epilogue_seeds),
    ("attention", matmul.attention_seeds),
    ("matmul", matmul.matmul_seeds),
    ("reduction", heuristics.reduction_seeds),
    ("pointwise", heuristics.pointwise_seeds),
    ("anything", lambda kernel: [CpuSeed({})] if kernel.entries.blocks else []),
)
"""The first that answers gives the default; more specific ones come first."""


class CpuBlockSizeFragment(fragments.BlockSizeFragment):
    """A block size on a CPU: also any multiple of 8. Only powers of two are searched."""

    @property
    @override
    def expects(self) -> str:
        return f"a power of two or a multiple of 8{self._range_text()}"

    @override
    def contains(self, value: Any) -> bool:
        is_whole = is_power_of_two(value) or (
            fragments.is_int(value) and value > 0 and value % 8 == 0
        )
        return is_whole and self._is_declared(value)


class CpuRules(ScheduleRules):
    """Tiles have their true size; those that are kept lie in memory, one set for each thread."""

    backend = "cpu"
    sizes = SizeRules(fragment=CpuBlockSizeFragment)

    @override
    def slots(self, kernel: TargetedKernel) -> KernelSlots:
        outline, facts = kernel.outline, kernel.facts
        lists = common_lists(outline, facts, kernel.entries, self.sizes, program_order)
        return KernelSlots(lists, scalar_slots(outline, facts))

    @override
    def device(self) -> Device:
        return device_of(self.target)

    @override
    def model(self, kernel: TargetedKernel) -> CpuModel:
        return CpuModel(kernel, self.device())

    @override
    def seeds(self, kernel: TargetedKernel) -> tuple[str, Sequence[Seed]]:
        for name, heuristic in HEURISTICS:
            seeds = heuristic(kernel)
            if seeds:
                return name, seeds
        return "", ()

    @override
    def candidates(self, kernel: TargetedKernel, first: Seed | None) -> Iterable[Seed]:
        return _candidates(kernel, first if isinstance(first, CpuSeed) else CpuSeed({}))


def _candidates(kernel: TargetedKernel, seed: CpuSeed) -> Iterator[CpuSeed]:
    """Blocks up to four times smaller and larger than the seed's, each for itself."""
    names = list(kernel.entries.blocks)[-MAX_AXES:]
    base = complete_blocks(kernel, seed.blocks)
    sizes = [_around(kernel, name, base[name]) for name in names]
    for blocks in product(*sizes):
        yield replace(seed, blocks={**base, **dict(zip(names, blocks))})


def _around(kernel: TargetedKernel, name: str, size: int) -> list[int]:
    low, high = kernel.minimum(name), longest(kernel, name)
    return list(dict.fromkeys(min(max(low, int(size * step)), high) for step in STEPS))


MAX_THREADS = 1024
STREAMED_BYTES = 64 << 20
"""Outputs from here on do not stay in any cache, so stores may as well bypass them."""


def scalar_slots(outline: FunctionOutline, facts: Facts) -> dict[str, Slot]:
    """One slot for each key."""
    is_uneven = has_uneven_programs(outline)
    is_streamed = largest_streamed_bytes(outline) >= STREAMED_BYTES
    schedules = fragments.EnumFragment(("static", "dynamic"))
    unrolls = fragments.PowerOfTwoFragment(1, 8, 4)
    return {
        "cpu_threads": _slot("cpu_threads", fragments.IntegerFragment(0, MAX_THREADS), 0, False),
        "cpu_unroll": _slot("cpu_unroll", unrolls, 4, bool(facts.reductions)),
        # Smaller outputs are likely to be read from the cache by whatever comes next, which a
        # search does not see.
        "cpu_streaming_stores": _slot(
            "cpu_streaming_stores", fragments.BooleanFragment(), is_streamed, is_streamed
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


def _slot(name: str, valid: fragments.Fragment, default: object, is_searched: bool) -> Slot:
    return Slot(name, valid, valid if is_searched else fragments.EnumFragment((default,)), default)


def has_uneven_programs(outline: FunctionOutline) -> bool:
    """Whether the length of some loop depends on loaded data or on where its program stands."""
    if any(isinstance(site.op, While) for site in outline.sites):
        return True
    axes = [(loop, position) for loop in outline.loops for position in range(len(loop.blocks))]
    return any(_is_uneven(outline, *axis) for axis in axes)


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
    ops = [site.op for site in outline.sites]
    used = {op.tensor.tensor.alias for op in ops if isinstance(op, (Load, Atomic))}
    stores = [op for op in outline.ops(Store) if op.tensor.tensor.alias not in used]
    plain = [op for op in stores if _is_plain(outline, op)]
    return max((_known_bytes(op.tensor.tensor) for op in plain), default=0)


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
