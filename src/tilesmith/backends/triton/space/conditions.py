"""Values of a GPU Config: when they have an effect, which go together, which need less."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from typing_extensions import override

from tilesmith.artifacts import MAX_LAUNCH_SIDE
from tilesmith.backends.triton.model.costs import device_of
from tilesmith.backends.triton.workarounds.loop_limits import find_limit
from tilesmith.exc import InvalidConfig
from tilesmith.ir.ops.memory import Store
from tilesmith.ir.types import Dim, Shape
from tilesmith.schedule.config import KEYS_BY_NAME, RANGE_KEYS, is_persistent
from tilesmith.schedule.facts.outline import FunctionOutline
from tilesmith.schedule.model.estimates import Device, ResourceUse
from tilesmith.schedule.rules import Ignored, ScheduleRules, TargetedKernel, Values
from tilesmith.schedule.space.slots import Entries, is_flattened, is_static

PERSISTENT_KEYS = ("num_sm_multiplier", "maxnreg")
LEFT_OUT = ("num_sm_multiplier", "maxnreg", "epilogue_subtile")
"""A Config does not name these where they have their default."""


def _is_loop_entry_active(
    entries: Entries, values: Mapping[str, Any], key: str, index: int
) -> bool:
    """Entries about a grid whose axes are merged have no effect; nor can xyz number merged axes."""
    owners = {
        "loop_orders": entries.ordered,
        "l2_groupings": entries.grouped,
        "indexing": entries.access_grids,
    }
    if key == "flatten_loops":
        return values.get("pid_type") != "xyz"
    return key not in owners or not is_flattened(entries, values, owners[key][index])


def _is_range_active(entries: Entries, values: Mapping[str, Any], index: int) -> bool:
    entry = entries.ranges[index]
    if entry.is_persistent_loop:
        # All grids share one persistent loop, which takes the options of the first.
        return is_persistent(values["pid_type"]) and index == 0
    return not is_static(entries, values, entry.loop)


def _is_safe(entries: Entries, values: Mapping[str, Any], key: str, index: int) -> bool:
    """Whether Triton compiles the option rightly.

    With tensor descriptors a loop must not have its own number of stages, nor be unrolled inside a
    pipelined kernel. Specialised warps come in groups of four.
    """
    if values[key][index] and find_limit(entries, key, index):
        return False
    if key == "range_warp_specializes":
        return values["num_warps"] >= 4
    if "tensor_descriptor" not in (values.get("indexing") or []):
        return True
    if key == "range_num_stages":
        return False
    return key != "range_unroll_factors" or values["num_stages"] == 1


def _effective_static_ranges(entries: Entries, values: Mapping[str, Any]) -> list[bool]:
    """Without marks of loops that have many turns, and without positions that say nothing."""
    short = len(entries.static)
    marks = list(values["static_ranges"])
    marks[short:] = [is_static(entries, values, axis.loop) for axis in entries.tuned_turns]
    while len(marks) > short and not marks[-1]:
        marks.pop()
    return marks


def _single_warp_specialization(values: Values) -> Values:
    """Only the first warp-specialised loop stays so, and it is not unrolled."""
    marks = list(values.get("range_warp_specializes") or [])
    if True not in marks:
        return values
    first = marks.index(True)
    unrolls = list(values["range_unroll_factors"])
    unrolls[first] = 0
    marks = [mark if i <= first or mark is not True else None for i, mark in enumerate(marks)]
    return {**values, "range_warp_specializes": marks, "range_unroll_factors": unrolls}


PID_TYPES = ("flat", "xyz", "persistent_blocked", "persistent_interleaved")


def find_disallowed(outline: FunctionOutline) -> dict[str, str]:
    """For each unusable type the reason."""
    reasons: dict[str, str] = {}
    count = len(outline.grids)
    if count != 1:
        reasons["xyz"] = f"the kernel has {count} top-level loops, which share one launch axis"
    elif not 2 <= len(outline.grids[0].blocks) <= 3:
        axes = len(outline.grids[0].blocks)
        reasons["xyz"] = f"the top-level loop has {axes} axes, xyz needs 2 or 3"
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


def _exceeds_launch(kernel: TargetedKernel, values: Mapping[str, Any]) -> bool:
    return max(_xyz_counts(kernel, values)[1:], default=0) > MAX_LAUNCH_SIDE


def _xyz_counts(kernel: TargetedKernel, values: Mapping[str, Any]) -> list[int]:
    """Programs along each launch axis of the only grid under ``xyz``; 0 where it is not known."""
    if values.get("pid_type") != "xyz":
        return []
    sizes, outline = kernel.sizes(values).symbols, kernel.outline
    axes = [outline.axes_of(outline.grids[0])[i] for i in values["loop_orders"][0]]
    return [-(-(axis.extent or 0) // (sizes[axis.block] if axis.block else 1)) for axis in axes]


MAX_THREADS = 1024


def _all_dims(kernel: TargetedKernel) -> Shape:
    return tuple(map(Dim.of, kernel.entries.blocks))


def _widen(kernel: TargetedKernel, values: Values) -> Values | None:
    warps = values["num_warps"] * 2
    most = 16 if kernel.facts.matmuls else 32
    if warps > most or warps * kernel.target.warp_size > MAX_THREADS:
        return None
    return {**values, "num_warps": warps}


def _fewer_copies(values: Values) -> Values | None:
    """Loops that are not unrolled hold one set of buffers, and are as long as they are written."""
    neutral = {"range_unroll_factors": 0, "static_ranges": False}
    given = {key: values[key] for key in neutral if any(values.get(key) or ())}
    if not given:
        return None
    return {**values, **{key: [neutral[key]] * len(items) for key, items in given.items()}}


def _fewer_stages(values: Values, least: int) -> Values | None:
    stages = list(values.get("range_num_stages") or [])
    if any(count > least for count in stages):
        return {**values, "range_num_stages": [min(count, least) for count in stages]}
    if values["num_stages"] <= least:
        return None
    return {**values, "num_stages": values["num_stages"] - 1}


class ConfigConditions(ScheduleRules):
    """What all forms of GPU kernels share: the device, and rules that look at values only."""

    @override
    def is_active(
        self, entries: Entries, values: Mapping[str, Any], key: str, index: int | None
    ) -> bool:
        if key in PERSISTENT_KEYS:
            return is_persistent(values["pid_type"])
        if key == "epilogue_subtile":
            choices = zip(entries.accesses, values.get("indexing") or [])
            return any(isinstance(op, Store) and how == "tensor_descriptor" for op, how in choices)
        if key == "xcd_remap":
            return values["pid_type"] != "xyz"
        if index is None:
            return True
        if key in RANGE_KEYS:
            return _is_range_active(entries, values, index) and _is_safe(
                entries, values, key, index
            )
        return _is_loop_entry_active(entries, values, key, index)

    @override
    def reset_inactive(self, entries: Entries, values: Values) -> Values:
        result = super().reset_inactive(entries, values)
        if "static_ranges" in values:
            result["static_ranges"] = _effective_static_ranges(entries, result)
        for key in (*PERSISTENT_KEYS, "xcd_remap", "epilogue_subtile"):
            if key in result and not self.is_active(entries, result, key, None):
                del result[key]
        for key in LEFT_OUT:
            if result.get(key) == KEYS_BY_NAME[key].default:
                result.pop(key, None)
        return _single_warp_specialization(result)

    @override
    def ignored(self, entries: Entries, values: Mapping[str, Any]) -> Iterator[Ignored]:
        for key in ("range_unroll_factors", "range_flattens"):
            for index, item in enumerate(values.get(key) or []):
                problem = find_limit(entries, key, index) if item else ""
                if problem and _is_range_active(entries, values, index):
                    yield f"{key}[{index}]={item}", entries.ranges[index].loop.loc, problem

    @override
    def check(self, values: Mapping[str, Any]) -> None:
        for key in () if is_persistent(values["pid_type"]) else PERSISTENT_KEYS:
            default = KEYS_BY_NAME[key].default
            if values.get(key, default) != default:
                raise InvalidConfig(
                    problem=f"{key}={values[key]} with pid_type={values['pid_type']!r}",
                    expected=f"{key} is for persistent programs only",
                    fix=f'leave out {key}, or use pid_type="persistent_blocked"',
                )
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
        if self._exceeds_registers(values):
            limit, warps = values["maxnreg"], values["num_warps"]
            raise InvalidConfig(
                problem=f"maxnreg={limit} with num_warps={warps}",
                expected="at most 65536 registers per program: maxnreg * num_warps * 32",
                found=str(limit * warps * self.target.warp_size),
                fix="lower maxnreg or num_warps",
            )

    def _exceeds_registers(self, values: Mapping[str, Any]) -> bool:
        limit = values.get("maxnreg")
        return bool(limit) and limit * values["num_warps"] * self.target.warp_size > 65536

    @override
    def device(self) -> Device:
        return device_of(self.target)

    @override
    def check_launch(self, kernel: TargetedKernel, values: Mapping[str, Any]) -> None:
        if _exceeds_launch(kernel, values):
            counts = " x ".join(map(str, _xyz_counts(kernel, values)))
            raise InvalidConfig(
                problem=f"pid_type='xyz' would launch {counts} programs",
                expected=f"at most {MAX_LAUNCH_SIDE} along the second and third axis",
                fix="use pid_type='flat', larger block_sizes, or another of the loop_orders",
            )

    @override
    def relax(self, kernel: TargetedKernel, values: Values) -> Values:
        if self._exceeds_registers(values):
            del values["maxnreg"]
        if _exceeds_launch(kernel, values):
            # Programs can be numbered along one axis wherever they can be along three.
            values["pid_type"] = "flat"
        return values

    @override
    def lighten(
        self, kernel: TargetedKernel, values: Values, use: ResourceUse
    ) -> Iterator[Values | None]:
        """Ways to need less of what there is too little of, the cheapest first."""
        if not use.fits_registers and use.largest_resident is not None:
            shape = use.largest_resident.tile.shape
            # The hardware's limit instead of a lower one.
            yield {**values, "maxnreg": None} if values.get("maxnreg") else None
            yield kernel.halve_block(values, shape)
            yield _widen(kernel, values)
            yield kernel.roll(values, shape)
            yield kernel.halve_block(values, _all_dims(kernel))
        elif not use.straight.is_short:
            yield _fewer_copies(values)
            yield kernel.halve_block(values, _all_dims(kernel))
            yield _widen(kernel, values)
        elif not use.fits_shared:
            yield _fewer_copies(values)
            yield _fewer_stages(values, 3)
            dims = tuple(dim for value in use.shared_tiles for dim in value.tile.shape)
            yield kernel.halve_block(values, dims)
            yield _fewer_stages(values, 1)
