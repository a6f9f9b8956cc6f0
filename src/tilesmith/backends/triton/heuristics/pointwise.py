"""Schedules of elementwise kernels: wide along memory, a few vectors per thread."""

from __future__ import annotations

from tilesmith.backends.triton.heuristics.seed import GpuSeed
from tilesmith.schedule.facts.accesses import AccessFact
from tilesmith.schedule.facts.collect import PointwiseFact
from tilesmith.schedule.rules import TargetedKernel
from tilesmith.schedule.space.sizes import power_of_2_floor

MOVED_BYTES = 16384
"""Bytes one program moves: enough vectors in flight for each thread to reach full bandwidth."""
REGISTER_BYTES = 65536
PROGRAMS_PER_SM = 8
LEAST_ELEMENTS = 256


def _target_elements(kernel: TargetedKernel, fact: PointwiseFact) -> int:
    slab = max(1, fact.slab)
    most = REGISTER_BYTES / (slab * 4)
    wanted = min(MOVED_BYTES / (slab * max(1, fact.storage_bytes)), most)
    if fact.total is not None:
        wanted = min(wanted, fact.total / (kernel.target.num_sms * PROGRAMS_PER_SM))
    floor = min(LEAST_ELEMENTS // min(LEAST_ELEMENTS, slab), most)
    return power_of_2_floor(max(wanted, floor))


def _spread(kernel: TargetedKernel, names: list[str], elements: int) -> dict[str, int]:
    """Give the elements to the blocks in turn, each as many as its axis takes."""
    blocks: dict[str, int] = {}
    for name in names:
        blocks[name] = min(kernel.whole(name), max(1, elements))
        elements //= blocks[name]
    return blocks


def _square(kernel: TargetedKernel, names: list[str], elements: int) -> dict[str, int]:
    """Equal sides for axes that all run along some tensor's memory (transposes)."""
    side = power_of_2_floor((4 * elements) ** (1 / len(names)))
    return {name: min(kernel.whole(name), max(16, side)) for name in names}


def _warps(fact: PointwiseFact, elements: int) -> int:
    wanted = 16 if fact.num_transcendentals >= 9 else 8 if fact.num_transcendentals >= 3 else 4
    return max(4, min(wanted, power_of_2_floor(elements / 64)))


def pointwise_seeds(kernel: TargetedKernel) -> list[GpuSeed]:
    """A seed, and one with twice the elements per program."""
    fact = kernel.facts.pointwise
    if fact is None or not kernel.entries.blocks:
        return []
    elements = _target_elements(kernel, fact)
    return [_seed(kernel, fact, elements), _seed(kernel, fact, elements * 2)]


def spread_elements(kernel: TargetedKernel, elements: int) -> dict[str, int]:
    """Blocks of a tile of that many elements, long along memory."""
    names = list(kernel.entries.blocks)
    contiguous = {fact.contiguous_block for fact in _largest(kernel)}
    along = [name for name in names if name in contiguous]
    if len(along) > 1:
        return _square(kernel, along, elements)
    others = [name for name in reversed(names) if name not in along]
    return _spread(kernel, along + others, elements)


def _largest(kernel: TargetedKernel) -> list[AccessFact]:
    """Accesses of tiles with the most axes; lookups and factors of rows move little."""
    by_rank: dict[int, list[AccessFact]] = {}
    for fact in kernel.facts.accesses:
        by_rank.setdefault(sum(not dim.is_one for dim in fact.shape), []).append(fact)
    return by_rank[max(by_rank)] if by_rank else []


def _seed(kernel: TargetedKernel, fact: PointwiseFact, elements: int) -> GpuSeed:
    blocks = spread_elements(kernel, elements)
    return GpuSeed(blocks, _warps(fact, elements * max(1, fact.slab)))
