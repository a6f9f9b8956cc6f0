"""Bytes that the programs of a grid move: from the shared cache, and from memory behind it.

Programs that run at the same time find each other's tiles in the cache; which tiles those are
depends on the order in which programs are numbered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, prod
from typing import Any

from tilesmith.ir.ops.control_flow import Grid
from tilesmith.schedule.model.program_work import Access, GridWork, WorkModel, access_bytes
from tilesmith.schedule.space.sizes import TileSizes
from tilesmith.schedule.space.slots import Entries

SECTOR_BYTES = 32
"""The least that is fetched."""
CACHED_SHARE = 0.7
"""Of the shared cache, for tensors that are read again."""


@dataclass(frozen=True)
class Numbering:
    """How the programs of a grid follow one another."""

    order: tuple[int, ...]
    """Axes, the fastest first."""
    grouping: int = 1
    is_scattered: bool = False
    """Whether programs that run at the same time are far from each other."""

    @staticmethod
    def of(entries: Entries, values: Mapping[str, Any], grid: Grid) -> Numbering:
        """As a Config says."""
        pid_type = values.get("pid_type", "flat")
        order = _entry(entries.ordered, values.get("loop_orders"), grid)
        grouping = _entry(entries.grouped, values.get("l2_groupings"), grid)
        return Numbering(
            tuple(order or range(len(grid.blocks))),
            1 if pid_type == "xyz" else grouping or 1,
            pid_type == "persistent_blocked",
        )

    def distinct(self, counts: Sequence[int], num_programs: int, axes: frozenset[int]) -> int:
        """Different positions along some axes among programs that follow one another."""
        used = prod(counts[axis] for axis in axes)
        if self.is_scattered:
            return min(used, num_programs)
        widths: dict[int, int] = {}
        left = num_programs
        ordered = list(self.order)
        if self.grouping > 1 and len(ordered) > 1:
            fast, slow = ordered[:2]
            group = min(self.grouping, counts[fast])
            widths[slow] = min(counts[slow], ceil(left / group))
            widths[fast] = min(counts[fast], max(group, ceil(left / counts[slow])))
            left = ceil(left / (counts[fast] * counts[slow]))
            ordered = ordered[2:]
        for axis in ordered:
            widths[axis] = min(counts[axis], left)
            left = ceil(left / counts[axis])
        return min(used, num_programs, prod(widths[axis] for axis in axes))


def _entry(owners: Sequence[object], items: Sequence[Any] | None, grid: Grid) -> Any:
    for owner, item in zip(owners, items or ()):
        if owner is grid:
            return item
    return None


@dataclass(frozen=True)
class Traffic:
    """Bytes over all programs of a grid."""

    cache: float = 0.0
    """Asked of the shared cache, whole sectors."""
    memory: float = 0.0


def sector_waste(model: WorkModel, access: Access, sizes: TileSizes) -> float:
    """Bytes fetched for each byte used: short runs of memory take whole sectors."""
    fact = access.fact
    if fact.is_scalar:
        return 1.0
    along = fact.contiguous_dim
    run = 1 if along is None else model.used_elements((along,), sizes)
    return max(1.0, SECTOR_BYTES / (run * fact.dtype.itemsize))


def grid_traffic(
    model: WorkModel,
    work: GridWork,
    sizes: TileSizes,
    numbering: Numbering,
    running: int,
    cache_bytes: float,
) -> Traffic:
    """The traffic when that many programs run at the same time."""
    counts = model.programs(work, sizes)
    total = prod(counts)
    running = max(1, min(running, total))
    cached = CACHED_SHARE * cache_bytes
    footprint = sum(access.fact.distinct_bytes or 0.0 for access in work.accesses)
    cache, memory = 0.0, 0.0
    stored = {access.fact.tensor for access in work.accesses if not access.is_load}
    for access in work.accesses:
        once = access_bytes(model, access, sizes) * model.trips(access.loops, sizes)
        asked = once * total
        fetched = asked * sector_waste(model, access, sizes)
        distinct = access.fact.distinct_bytes or fetched
        cache += fetched
        if access.fact.tensor in stored and model.share(access.loops, sizes) < 1.0:
            # The last of those that wrote it comes right after them.
            continue
        if footprint <= cached or not access.is_load:
            memory += min(fetched, distinct)
            continue
        own = once / (model.passes(access.fact.shape, sizes) or 1)
        together = numbering.distinct(counts, running, access.grid_axes) * own
        memory += max(min(distinct, fetched), min(fetched, together * total / running))
    return Traffic(cache, memory)
