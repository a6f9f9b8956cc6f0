"""How programs may be numbered, which values of a GPU Config go together, what a device takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilesmith.exc import InvalidConfig
from tilesmith.schedule.facts.outline import FunctionOutline
from tilesmith.schedule.rules import TargetedKernel
from tilesmith.schedule.schedule import is_persistent
from tilesmith.schedule.space.keys import KEYS_BY_NAME
from tilesmith.targets import Target

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
    if outline.group_barriers:
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


def check_combinations(values: Mapping[str, Any], target: Target) -> None:
    """Raise if values that are right by themselves do not go together."""
    if not is_persistent(values["pid_type"]):
        _check_persistent_only(values)
    if values["pid_type"] == "xyz" and values.get("xcd_remap"):
        raise InvalidConfig(
            problem="xcd_remap=True with pid_type='xyz'",
            expected="xcd_remap renumbers programs along one launch axis",
            fix="leave out xcd_remap, or use pid_type='flat'",
        )
    if values["pid_type"] == "xyz" and any(values.get("flatten_loops") or []):
        raise InvalidConfig(
            problem=f"flatten_loops={values['flatten_loops']} with pid_type='xyz'",
            expected="xyz needs one launch axis for each axis of the loop",
            fix="leave out flatten_loops, or use pid_type='flat'",
        )
    _check_registers(values, target)


def _check_persistent_only(values: Mapping[str, Any]) -> None:
    """Raise if options of persistent programs are combined with others."""
    for key in ("num_sm_multiplier", "maxnreg"):
        default = KEYS_BY_NAME[key].default
        if values.get(key, default) != default:
            raise InvalidConfig(
                problem=f"{key}={values[key]} with pid_type={values['pid_type']!r}",
                expected=f"{key} is for persistent programs only",
                fix=f'leave out {key}, or use pid_type="persistent_blocked"',
            )


def _check_registers(values: Mapping[str, Any], target: Target) -> None:
    """Raise if ``maxnreg`` asks for more registers than a multiprocessor has."""
    if exceeds_registers(values, target):
        limit, warps = values["maxnreg"], values["num_warps"]
        raise InvalidConfig(
            problem=f"maxnreg={limit} with num_warps={warps}",
            expected="at most 65536 registers per program: maxnreg * num_warps * 32",
            found=str(limit * warps * target.warp_size),
            fix="lower maxnreg or num_warps",
        )


def exceeds_registers(values: Mapping[str, Any], target: Target) -> bool:
    """Whether all threads together would ask for more registers than there are."""
    limit = values.get("maxnreg")
    return bool(limit) and limit * values["num_warps"] * target.warp_size > 65536


def check_launch(kernel: TargetedKernel, values: Mapping[str, Any]) -> None:
    """Refuse more programs along a launch axis than there may be."""
    if exceeds_launch(kernel, values):
        counts = " x ".join(map(str, _xyz_counts(kernel, values)))
        raise InvalidConfig(
            problem=f"pid_type='xyz' would launch {counts} programs",
            expected=f"at most {MAX_LAUNCH_SIDE} along the second and third axis",
            fix="use pid_type='flat', larger block_sizes, or another of the loop_orders",
        )


def exceeds_launch(kernel: TargetedKernel, values: Mapping[str, Any]) -> bool:
    """Whether some launch axis has more programs than there may be."""
    return max(_xyz_counts(kernel, values)[1:], default=0) > MAX_LAUNCH_SIDE


def _xyz_counts(kernel: TargetedKernel, values: Mapping[str, Any]) -> list[int]:
    if values.get("pid_type") != "xyz":
        return []
    order = values["loop_orders"][0]
    return count_on_launch_axes(kernel.outline, kernel.sizes(values).symbols, order)
