"""Schedules of elementwise kernels: wide along memory, a few vectors per thread."""

from __future__ import annotations

from tilesmith.schedule.facts.accesses import AccessFact
from tilesmith.schedule.facts.collect import PointwiseFact
from tilesmith.schedule.heuristics.seed import Seed, Situation
from tilesmith.schedule.space.block_bounds import power_of_2_floor

MOVED_BYTES = 16384
"""Bytes one program moves: enough vectors in flight for each thread to reach full bandwidth."""
REGISTER_BYTES = 65536
PROGRAMS_PER_SM = 8
LEAST_ELEMENTS = 256


def _target_elements(situation: Situation, fact: PointwiseFact) -> int:
    slab = max(1, fact.slab)
    most = REGISTER_BYTES / (slab * 4)
    wanted = min(MOVED_BYTES / (slab * max(1, fact.storage_bytes)), most)
    if fact.total is not None:
        wanted = min(wanted, fact.total / (situation.target.num_sms * PROGRAMS_PER_SM))
    floor = min(LEAST_ELEMENTS // min(LEAST_ELEMENTS, slab), most)
    return power_of_2_floor(max(wanted, floor))


def _spread(situation: Situation, names: list[str], elements: int) -> dict[str, int]:
    """Give the elements to the blocks in turn, each as many as its axis takes."""
    blocks: dict[str, int] = {}
    for name in names:
        blocks[name] = min(situation.whole(name), max(1, elements))
        elements //= blocks[name]
    return blocks


def _square(situation: Situation, names: list[str], elements: int) -> dict[str, int]:
    """Equal sides for axes that all run along some tensor's memory (transposes)."""
    side = power_of_2_floor((4 * elements) ** (1 / len(names)))
    return {name: min(situation.whole(name), max(16, side)) for name in names}


def _warps(fact: PointwiseFact, elements: int) -> int:
    wanted = 16 if fact.num_transcendentals >= 9 else 8 if fact.num_transcendentals >= 3 else 4
    return max(4, min(wanted, power_of_2_floor(elements / 64)))


def pointwise_seeds(situation: Situation) -> list[Seed]:
    """A seed, and one with twice the elements per program."""
    fact = situation.facts.pointwise
    if fact is None or not situation.entries.blocks:
        return []
    elements = _target_elements(situation, fact)
    return [_seed(situation, fact, elements), _seed(situation, fact, elements * 2)]


def spread_elements(situation: Situation, elements: int) -> dict[str, int]:
    """Blocks of a tile of that many elements, long along memory."""
    names = list(situation.entries.blocks)
    contiguous = {fact.contiguous_block for fact in _largest(situation)}
    along = [name for name in names if name in contiguous]
    if len(along) > 1:
        return _square(situation, along, elements)
    others = [name for name in reversed(names) if name not in along]
    return _spread(situation, along + others, elements)


def _largest(situation: Situation) -> list[AccessFact]:
    """Accesses of tiles with the most axes; lookups and factors of rows move little."""
    by_rank: dict[int, list[AccessFact]] = {}
    for fact in situation.facts.accesses:
        by_rank.setdefault(sum(not dim.is_one for dim in fact.shape), []).append(fact)
    return by_rank[max(by_rank)] if by_rank else []


def _seed(situation: Situation, fact: PointwiseFact, elements: int) -> Seed:
    blocks = spread_elements(situation, elements)
    return Seed(blocks, _warps(fact, elements * max(1, fact.slab)))
