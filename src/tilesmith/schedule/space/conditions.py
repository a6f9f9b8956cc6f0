"""When an option has an effect: under which values of other keys a position of a Config matters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilesmith.schedule.facts.outline import AnyLoop
from tilesmith.schedule.space.slots import Entries


def _flag(values: Mapping[str, Any], key: str, index: int) -> bool:
    items = values.get(key) or []
    return index < len(items) and bool(items[index])


def is_flattened(entries: Entries, values: Mapping[str, Any], loop: AnyLoop | None) -> bool:
    """Whether the loop's axes are merged into one."""
    return any(
        other is loop and _flag(values, "flatten_loops", i)
        for i, other in enumerate(entries.flattened)
    )


def is_static(entries: Entries, values: Mapping[str, Any], loop: AnyLoop) -> bool:
    """Whether the loop is unrolled completely: all its axes must be marked."""
    positions = entries.static_of(loop)
    if len(positions) != len(loop.blocks):
        return False
    return all(_flag(values, "static_ranges", i) for i in positions)


def is_active(entries: Entries, values: Mapping[str, Any], key: str, index: int | None) -> bool:
    """Whether the entry has an effect: the order of axes that are merged has none."""
    if key != "loop_orders" or index is None:
        return True
    return not is_flattened(entries, values, entries.ordered[index])


def reset_inactive(entries: Entries, values: dict[str, Any]) -> dict[str, Any]:
    """The same values with orders of merged axes as they are written."""
    if "loop_orders" not in values:
        return dict(values)
    orders = [
        order
        if is_active(entries, values, "loop_orders", i)
        else list(range(len(entries.ordered[i].blocks)))
        for i, order in enumerate(values["loop_orders"])
    ]
    return {**values, "loop_orders": orders}
