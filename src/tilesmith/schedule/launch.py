"""The part of a Config that decides about resources, besides the sizes of tiles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class LoopUse:
    """Stages (0: the kernel's) and unrolling of one loop."""

    num_stages: int = 0
    unroll: int = 1


@dataclass(frozen=True)
class Launch:
    """The part of a Config that resources depend on, besides sizes."""

    num_warps: int
    num_stages: int
    loops: Mapping[int, LoopUse]
    """By slot."""
    maxnreg: int | None = None
    descriptors: frozenset[int] = frozenset()
    """Slots of loads and stores that go through descriptors, and so through shared memory."""
    store_parts: int = 1
    """In how many parts tiles are stored through descriptors."""
    program_loop: LoopUse = LoopUse()
    is_persistent: bool = False
    """Whether each program walks over many tiles."""
    is_fused: bool = False
    """Whether the loop over programs is flattened into the loops inside it."""
