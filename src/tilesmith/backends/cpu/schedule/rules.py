"""What the CPU backend decides about schedules: sizes, keys, heuristics, times."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from random import Random
from typing import Any

from typing_extensions import override

from tilesmith.backends.cpu.schedule.matmul import (
    attention_seeds,
    matmul_seeds,
    reduction_epilogue_seeds,
)
from tilesmith.backends.cpu.schedule.pointwise import pointwise_seeds
from tilesmith.backends.cpu.schedule.reduction import reduction_seeds
from tilesmith.backends.cpu.schedule.seed import CpuSeed, complete_blocks, longest
from tilesmith.backends.cpu.schedule.slots import program_order, scalar_slots
from tilesmith.backends.cpu.schedule.time_model import CpuModel, device_of
from tilesmith.schedule.model.estimates import Device
from tilesmith.schedule.rules import ScheduleRules, Seed, TargetedKernel
from tilesmith.schedule.space.fragments import BlockSizeFragment, is_int, is_power_of_two
from tilesmith.schedule.space.sizes import KernelSlots, SizeRules, common_lists

STEPS = (0.25, 0.5, 1.0, 2.0, 4.0)
MAX_AXES = 3


def _middling_tiles(kernel: TargetedKernel) -> list[CpuSeed]:
    return [CpuSeed({})] if kernel.entries.blocks else []


HEURISTICS: tuple[tuple[str, Callable[[TargetedKernel], Sequence[CpuSeed]]], ...] = (
    ("matmul with reduction epilogue", reduction_epilogue_seeds),
    ("attention", attention_seeds),
    ("matmul", matmul_seeds),
    ("reduction", reduction_seeds),
    ("pointwise", pointwise_seeds),
    ("anything", _middling_tiles),
)
"""The first that answers gives the default; more specific ones come first."""


class CpuBlockSizeFragment(BlockSizeFragment):
    """A block size on a CPU: also any multiple of 8. Only powers of two are searched."""

    @property
    @override
    def expects(self) -> str:
        return "a power of two or a multiple of 8"

    @override
    def contains(self, value: Any) -> bool:
        return is_power_of_two(value) or (is_int(value) and value > 0 and value % 8 == 0)

    @override
    def neighbours(self, value: int, radius: int = 1) -> list[int]:
        return [other for other in super().neighbours(value, radius) if is_power_of_two(other)]

    @override
    def mutate(self, value: int, difference: tuple[Any, Any], rng: Random) -> int:
        is_still = difference[0] == difference[1]
        start = value if is_still else 1 << (value.bit_length() - 1)
        return super().mutate(start, difference, rng)


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
