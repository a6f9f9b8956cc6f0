"""Which ways of numbering programs a kernel can run with, and why not the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilesmith.schedule.facts.outline import FunctionOutline

PID_TYPES = ("flat", "xyz", "persistent_blocked", "persistent_interleaved")
MAX_LAUNCH_SIDE = 65535
"""The most programs along the second and third launch axis."""


def _why_not_xyz(outline: FunctionOutline) -> str | None:
    if len(outline.grids) != 1:
        return f"the kernel has {len(outline.grids)} top-level loops, which share one launch axis"
    (grid,) = outline.grids
    if not 2 <= len(grid.blocks) <= 3:
        return f"the top-level loop has {len(grid.blocks)} axes, xyz needs 2 or 3"
    return None


def find_disallowed(outline: FunctionOutline) -> dict[str, str]:
    """For each unusable type the reason."""
    reasons: dict[str, str] = {}
    why_not_xyz = _why_not_xyz(outline)
    if why_not_xyz:
        reasons["xyz"] = why_not_xyz
    bounds = [bound for grid in outline.grids for bound in (*grid.begins, *grid.ends)]
    if any(map(outline.is_data_dependent, bounds)):
        # The host does not know how many programs there are.
        for name in ("flat", "xyz"):
            reasons[name] = "the range of the top-level loop is read from a tensor"
    if outline.has_barrier:
        for name in ("flat", "xyz", "persistent_interleaved"):
            reasons[name] = "hl.barrier() needs all programs resident, each with its own tiles"
    if outline.meetings:
        for name in PID_TYPES[1:]:
            reasons[name] = "programs wait for each other, and are numbered as they start"
    return reasons


def count_on_launch_axes(
    outline: FunctionOutline, sizes: Mapping[str, int], order: Sequence[int]
) -> list[int]:
    """Programs along each launch axis of the only grid under ``xyz``; 0 where it is not known."""
    axes = outline.axes_of(outline.grids[0])
    return [
        -(-(axes[i].extent or 0) // (sizes[axes[i].block] if axes[i].block else 1)) for i in order
    ]
