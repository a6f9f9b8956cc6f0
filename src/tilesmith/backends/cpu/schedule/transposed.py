"""Tiles of tensors that are read across: a cache line for each lane, and few sets to hold them.

The first cache finds a line by the low 12 bits of its address. Lines that are a stride apart meet
in few sets where the stride shares a large power of two with 4096, and what does not fit is loaded
again for each of its elements. So there are no more such lines than have room, and the tile is
longer the other way, along which the lines lie.

``x.T``, one thread of a Zen 5, ms with tiles of 64x64 and with these: float32 1024x1024 1.77 and
0.43 (eager 0.40), 512x2048 1.69 and 0.42 (0.35), 1536x1536 1.81 and 0.68 (0.94), bfloat16 2048x2048
6.1 and 1.4 (1.5); 1000x1000 stays at 0.25 (0.35).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import gcd

from tilesmith.schedule.facts.fact_set import AccessFact
from tilesmith.schedule.space.sizes import power_of_2_floor
from tilesmith.targets import Target

_WAY_BYTES, _LINE_BYTES = 4096, 64


def fit_lines(
    sizes: Mapping[str, int], accesses: Iterable[AccessFact], target: Target
) -> dict[str, int]:
    """A square tile of two axes, or a narrow one whose lines have room in the first cache."""
    facts = [fact for fact in accesses if not fact.is_scalar]
    stored = {fact.contiguous_block for fact in facts if fact.kind != "load"}
    lanes = stored.pop() if len(stored) == 1 else None
    if len(sizes) != 2 or lanes is None or lanes not in sizes:
        return {**sizes}
    other = next(name for name in sizes if name != lanes)
    read = [f for f in facts if f.kind == "load" and f.contiguous_block == other]
    room = min((_count_lines(fact, lanes, target) for fact in read), default=sizes[lanes])
    narrow = max(target.vector_lanes, power_of_2_floor(room))
    if narrow >= sizes[lanes]:
        return {**sizes}
    return {lanes: narrow, other: sizes[other] * sizes[lanes] // narrow}


def _count_lines(fact: AccessFact, lanes: str, target: Target) -> int:
    """How many lines of an access, one for each lane, the first cache holds at once."""
    steps = [
        stride
        for stride, pattern in zip(fact.known_strides, fact.patterns)
        if lanes in pattern.dim.symbols
    ]
    # A stride that is not known, or made of several, is taken for one that spreads lines evenly.
    step = steps[0] * fact.dtype.itemsize if len(steps) == 1 and steps[0] else _LINE_BYTES
    return target.l1_bytes // max(_LINE_BYTES, gcd(step, _WAY_BYTES))
