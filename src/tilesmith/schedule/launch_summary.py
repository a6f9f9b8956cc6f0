"""The part of a Config that decides about resources, read off its lists."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from tilesmith.schedule.facts.collect import Facts
from tilesmith.schedule.launch import Launch, LoopUse
from tilesmith.schedule.pid_types import is_persistent
from tilesmith.schedule.space.slots import Entries
from tilesmith.targets import Target


class SummarisedSpec(Protocol):
    """What this needs of a ConfigSpec."""

    facts: Facts
    entries: Entries
    target: Target


def _loop_uses(entries: Entries, values: Mapping[str, Any]) -> dict[int, LoopUse]:
    stages, unrolls = values["range_num_stages"], values["range_unroll_factors"]
    return {
        entry.loop.slot: LoopUse(stages[i], unrolls[i])
        for i, entry in enumerate(entries.ranges)
        if not entry.is_persistent_loop
    }


def _program_loop(entries: Entries, values: Mapping[str, Any]) -> LoopUse:
    if not is_persistent(values["pid_type"]) or not entries.ranges:
        return LoopUse()
    return LoopUse(values["range_num_stages"][0], values["range_unroll_factors"][0])


def _descriptors(spec: SummarisedSpec, values: Mapping[str, Any]) -> frozenset[int]:
    if not spec.target.has_tensor_descriptors:
        return frozenset()
    fitting = {f.slot for f in spec.facts.accesses if f.kind != "atomic" and f.fits_descriptor}
    choices = zip(spec.entries.accesses, values.get("indexing") or [])
    chosen = {op.slot for op, choice in choices if choice == "tensor_descriptor"}
    return frozenset(fitting & chosen)


def launch_of(spec: SummarisedSpec, values: Mapping[str, Any]) -> Launch:
    """The summary of normalised values."""
    flattens = values.get("range_flattens") or [None]
    return Launch(
        num_warps=values["num_warps"],
        num_stages=values["num_stages"],
        loops=_loop_uses(spec.entries, values),
        maxnreg=values.get("maxnreg"),
        descriptors=_descriptors(spec, values),
        store_parts=values.get("epilogue_subtile") or 1,
        program_loop=_program_loop(spec.entries, values),
        is_persistent=is_persistent(values["pid_type"]),
        is_fused=is_persistent(values["pid_type"]) and flattens[0] is True,
    )
