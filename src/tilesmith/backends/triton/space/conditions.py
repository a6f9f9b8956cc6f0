"""When an option of a GPU Config has an effect, given the values of other keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilesmith.ir.ops.memory import Store
from tilesmith.schedule.schedule import is_persistent
from tilesmith.schedule.space.keys import KEYS_BY_NAME, RANGE_KEYS
from tilesmith.schedule.space.slots import Entries, is_flattened, is_static

PERSISTENT_KEYS = ("num_sm_multiplier", "maxnreg")
LEFT_OUT = ("num_sm_multiplier", "maxnreg", "epilogue_subtile")
"""A Config does not name these where they have their default."""


def is_active(entries: Entries, values: Mapping[str, Any], key: str, index: int | None) -> bool:
    """Whether the entry has an effect, given the other values."""
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
        return _is_range_active(entries, values, index) and _is_safe(values, key)
    return _is_loop_entry_active(entries, values, key, index)


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


def _is_safe(values: Mapping[str, Any], key: str) -> bool:
    """Whether Triton compiles the option rightly.

    With tensor descriptors a loop must not have its own number of stages, nor be unrolled inside a
    pipelined kernel. Specialised warps come in groups of four.
    """
    if key == "range_warp_specializes":
        return values["num_warps"] >= 4
    if "tensor_descriptor" not in (values.get("indexing") or []):
        return True
    if key == "range_num_stages":
        return False
    return key != "range_unroll_factors" or values["num_stages"] == 1


def _neutral(key: str, loop_rank: int = 0) -> Any:
    """The value of an entry without effect."""
    if key == "flatten_loops":
        return False
    if key == "loop_orders":
        return list(range(loop_rank))
    if key == "l2_groupings":
        return 1
    if key in RANGE_KEYS:
        return 0 if key in ("range_unroll_factors", "range_num_stages") else None
    return KEYS_BY_NAME[key].default


def reset_inactive(entries: Entries, values: dict[str, Any]) -> dict[str, Any]:
    """The same values with entries of no effect at their neutral value."""
    result = dict(values)
    # What others depend on comes first.
    for key in ("flatten_loops", "loop_orders", "l2_groupings", "indexing", *RANGE_KEYS):
        if key in values:
            result[key] = _reset_list(entries, result, key)
    for key in (*PERSISTENT_KEYS, "xcd_remap", "epilogue_subtile"):
        if key in result and not is_active(entries, result, key, None):
            del result[key]
    for key in LEFT_OUT:
        if result.get(key) == KEYS_BY_NAME[key].default:
            result.pop(key, None)
    return _single_warp_specialization(result)


def _reset_list(entries: Entries, values: Mapping[str, Any], key: str) -> list[Any]:
    items = list(values[key])
    for index in range(len(items)):
        if not is_active(entries, values, key, index):
            rank = len(entries.ordered[index].blocks) if key == "loop_orders" else 0
            items[index] = _neutral(key, rank)
    return items


def _single_warp_specialization(values: dict[str, Any]) -> dict[str, Any]:
    """Only the first warp-specialised loop stays so, and it is not unrolled."""
    marks = list(values.get("range_warp_specializes") or [])
    if True not in marks:
        return values
    first = marks.index(True)
    unrolls = list(values["range_unroll_factors"])
    unrolls[first] = 0
    marks = [mark if i <= first or mark is not True else None for i, mark in enumerate(marks)]
    return {**values, "range_warp_specializes": marks, "range_unroll_factors": unrolls}
