"""The part of a Config that decides about resources, besides the sizes of tiles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tilesmith.schedule.rules import TargetedKernel
from tilesmith.schedule.schedule import is_persistent


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


def _descriptors(kernel: TargetedKernel, values: Mapping[str, Any]) -> frozenset[int]:
    if not kernel.target.has_tensor_descriptors:
        return frozenset()
    fitting = {f.slot for f in kernel.facts.accesses if f.kind != "atomic" and f.fits_descriptor}
    choices = zip(kernel.entries.accesses, values.get("indexing") or [])
    chosen = {op.slot for op, choice in choices if choice == "tensor_descriptor"}
    return frozenset(fitting & chosen)


def launch_of(kernel: TargetedKernel, values: Mapping[str, Any]) -> Launch:
    """The summary of normalised values."""
    flattens = values.get("range_flattens") or [None]
    stages, unrolls = values["range_num_stages"], values["range_unroll_factors"]
    loops = is_persistent(values["pid_type"])
    return Launch(
        num_warps=values["num_warps"],
        num_stages=values["num_stages"],
        loops={
            entry.loop.slot: LoopUse(stages[i], unrolls[i])
            for i, entry in enumerate(kernel.entries.ranges)
            if not entry.is_persistent_loop
        },
        maxnreg=values.get("maxnreg"),
        descriptors=_descriptors(kernel, values),
        store_parts=values.get("epilogue_subtile") or 1,
        program_loop=LoopUse(stages[0], unrolls[0]) if loops and stages else LoopUse(),
        is_persistent=loops,
        is_fused=loops and flattens[0] is True,
    )
