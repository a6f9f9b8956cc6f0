"""Slots: one for each tunable thing of a function, in the order in which a Config lists them.

``Entries`` binds positions of a Config's lists to loops, axes and accesses; ``Slot`` says what
values a position takes, and is a ``Dimension`` of the search where it has more than one choice. A
position may have no effect, given the values of others. Every value is checked, and what is wrong
is said with its place and a remedy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, cast

import tilesmith.exc as errors
from tilesmith.ir.ops.control_flow import Grid, Loop
from tilesmith.ir.ops.memory import Atomic, Load, Store
from tilesmith.ir.types import Dim, next_power_of_2
from tilesmith.schedule.config import KEYS, KEYS_BY_NAME
from tilesmith.schedule.facts.outline import AnyLoop, FunctionOutline, LoopAxis
from tilesmith.schedule.space.fragments import Fragment

MAX_STATIC_TRIPS = 8


@dataclass(frozen=True)
class Slot:
    """One position of a list, or one scalar key.

    ``valid`` is what a Config may say, ``search`` what a search tries (one choice: nothing to try).
    """

    label: str
    valid: Fragment
    search: Fragment
    default: Any
    unusable: Mapping[str, str] = field(default_factory=dict[str, str])
    """Valid values that this kernel cannot have, with the reason."""

    @staticmethod
    def make(label: str, valid: Fragment, search: Fragment | None = None) -> Slot:
        """A slot with the default of ``valid``."""
        return Slot(label, valid, search or valid, valid.default)


@dataclass(frozen=True)
class RangeEntry:
    """An entry of the ``range_*`` lists: the persistent loop of a grid, or one axis of a loop."""

    loop: AnyLoop
    position: int = 0

    @property
    def is_persistent_loop(self) -> bool:
        """Whether it is about the loop over program ids."""
        return isinstance(self.loop, Grid)


@dataclass(frozen=True)
class Entries:
    """What each position of each list stands for."""

    blocks: tuple[str, ...]
    ordered: tuple[AnyLoop, ...]
    """Loops of two or more axes: ``loop_orders``."""
    flattened: tuple[Grid, ...]
    grouped: tuple[Grid, ...]
    """Grids of two or more axes: ``l2_groupings``."""
    rolled: tuple[Dim, ...]
    ranges: tuple[RangeEntry, ...]
    static: tuple[LoopAxis, ...]
    """Axes of loops with few turns, whatever the Config: ``static_ranges``."""
    tuned_turns: tuple[LoopAxis, ...]
    """Axes whose turns the Config decides: further positions of ``static_ranges``, for those who
    name them; no search does."""
    accesses: tuple[Load | Store, ...]
    atomics: tuple[Atomic, ...]
    access_grids: tuple[AnyLoop | None, ...]
    """The grid around each of the accesses (None for one that computes a grid's bounds)."""

    @property
    def loads(self) -> tuple[Load, ...]:
        """The loads among the accesses."""
        return tuple(op for op in self.accesses if isinstance(op, Load))

    @property
    def stores(self) -> tuple[Store, ...]:
        """The stores among the accesses."""
        return tuple(op for op in self.accesses if isinstance(op, Store))

    @property
    def evictable(self) -> tuple[Load, ...]:
        """Loads whose source does not say how to keep them in the cache."""
        return tuple(op for op in self.loads if not op.eviction)

    def ranges_of(self, loop: AnyLoop) -> list[int]:
        """Positions of a loop's axes in the ``range_*`` lists."""
        return [i for i, entry in enumerate(self.ranges) if entry.loop is loop]

    def static_of(self, loop: AnyLoop) -> list[int]:
        """Positions of a loop's axes in ``static_ranges``."""
        axes = (*self.static, *self.tuned_turns)
        return [i for i, axis in enumerate(axes) if axis.loop is loop]

    def has_few_turns(self, loop: AnyLoop, values: Mapping[str, Any]) -> bool:
        """Whether block sizes leave every axis of a loop few turns."""
        sizes = dict(zip(self.blocks, values.get("block_sizes") or []))
        return all(
            axis.extent is not None
            and -(-axis.extent // sizes.get(axis.block, 1)) <= MAX_STATIC_TRIPS
            for axis in self.tuned_turns
            if axis.loop is loop
        )


def collect_entries(
    outline: FunctionOutline, rolled: tuple[Dim, ...], flattened: tuple[Grid, ...]
) -> Entries:
    """Bind the positions of all lists for one function."""
    loops = outline.all_loops
    # Programs of a group must start one after the other: no order or grouping may part them.
    free = tuple(loop for loop in loops if not (outline.group_barriers and isinstance(loop, Grid)))
    ranges = [
        RangeEntry(loop, position)
        for loop in loops
        for position in range(1 if isinstance(loop, Grid) else len(loop.blocks))
    ]
    return Entries(
        blocks=outline.block_slots,
        ordered=tuple(loop for loop in free if len(loop.blocks) > 1),
        flattened=flattened,
        grouped=tuple(loop for loop in free if isinstance(loop, Grid) and len(loop.blocks) > 1),
        rolled=rolled,
        ranges=tuple(ranges),
        static=tuple(
            axis
            for loop in outline.loops
            for axis in outline.axes_of(loop)
            if _is_short(outline, loop, axis)
        ),
        tuned_turns=tuple(
            axis
            for loop in outline.loops
            for axis in outline.axes_of(loop)
            if axis.block in outline.block_slots and _has_constant_bounds(outline, loop, axis)
        ),
        accesses=outline.accesses,
        atomics=outline.atomics,
        access_grids=tuple(next(iter(outline.loops_around(op)), None) for op in outline.accesses),
    )


def _is_short(outline: FunctionOutline, loop: Loop, axis: LoopAxis) -> bool:
    """Whether the axis has constant bounds, a constant step and few trips, whatever the Config."""
    if axis.extent is None or not _has_constant_bounds(outline, loop, axis):
        return False
    step = constant_step(outline, loop, axis)
    return step is not None and -(-axis.extent // step) <= MAX_STATIC_TRIPS


def _has_constant_bounds(outline: FunctionOutline, loop: Loop, axis: LoopAxis) -> bool:
    bounds = (loop.begins[axis.position], loop.ends[axis.position])
    return all(outline.find_constant(bound) is not None for bound in bounds)


def constant_step(outline: FunctionOutline, loop: Loop, axis: LoopAxis) -> int | None:
    """The step of an axis that no Config changes, or None."""
    if axis.block and not outline.function.is_block(axis.block):
        return None
    if axis.block:
        fixed = outline.function.block(axis.block).fixed
        return None if fixed is None else next_power_of_2(fixed)
    # Axes of plain indices have steps, in their order.
    step = loop.steps[sum(not block for block in loop.blocks[: axis.position])]
    return outline.find_constant(step)


def label_of_loop(loop: AnyLoop) -> str:
    """A loop in the user's words: its kind, its line and its blocks."""
    kind = "program loop" if isinstance(loop, Grid) else "loop"
    names = ", ".join(block or "index" for block in loop.blocks)
    place = f" at {loop.loc}" if loop.loc.line else ""
    return f"{kind} over [{names}]{place}"


def label_of_access(op: Load | Store | Atomic) -> str:
    """An access in the user's words."""
    place = f" at {op.loc}" if op.loc.line else ""
    return f"{op.name} of {op.tensor.name or 'a tensor'}{place}"


def entry_of(values: Mapping[str, Any], key: str, owners: Sequence[object], owner: object) -> Any:
    """The entry of a list that is about a loop or an access; the neutral one if there is none."""
    pairs = zip(owners, values.get(key) or ())
    found = (item for other, item in pairs if other is owner)
    return next(found, KEYS_BY_NAME[key].neutral)


def is_flattened(entries: Entries, values: Mapping[str, Any], loop: AnyLoop | None) -> bool:
    """Whether the loop's axes are merged into one."""
    return bool(entry_of(values, "flatten_loops", entries.flattened, loop))


def is_static(entries: Entries, values: Mapping[str, Any], loop: AnyLoop) -> bool:
    """Whether the loop is unrolled completely: all its axes are marked and have few turns."""
    positions = entries.static_of(loop)
    if len(positions) != len(loop.blocks) or not entries.has_few_turns(loop, values):
        return False
    marks = values.get("static_ranges") or []
    return all(i < len(marks) and marks[i] for i in positions)


@dataclass(frozen=True)
class Dimension:
    """One entry of a Config: a scalar key (``index`` is None) or a position of a list."""

    key: str
    index: int | None
    label: str
    fragment: Fragment
    default: Any = None

    def __hash__(self) -> int:
        return hash((self.key, self.index))

    def put(self, values: dict[str, Any], value: Any) -> None:
        """Write the entry into a dictionary of full lists."""
        if self.index is None:
            values[self.key] = value
        else:
            values[self.key][self.index] = value

    def get(self, values: Mapping[str, Any]) -> Any:
        """Read the entry; one that was left out is at its default."""
        value = values.get(self.key)
        if value is None:
            return self.default
        return value if self.index is None else value[self.index]

    def __str__(self) -> str:
        return self.key if self.index is None else f"{self.key}[{self.index}] ({self.label})"


def collect_dimensions(
    lists: Mapping[str, tuple[Slot, ...]], scalars: Mapping[str, Slot]
) -> tuple[Dimension, ...]:
    """All dimensions, in the order of the key table; the user's tunables come last."""
    names = [key.name for key in KEYS if key.name in lists or key.name in scalars]
    names += [name for name in scalars if name not in names]
    entries: list[tuple[str, int | None, Slot]] = []
    for name in names:
        if name in scalars:
            entries.append((name, None, scalars[name]))
        else:
            entries.extend((name, i, slot) for i, slot in enumerate(lists[name]))
    return tuple(
        Dimension(key, index, slot.label, slot.search, slot.default)
        for key, index, slot in entries
        if slot.search.cardinality > 1
    )


HINT_LISTS = (
    "indexing",
    "atomic_indexing",
    "load_eviction_policies",
    "load_cache_modifiers",
    "store_cache_modifiers",
)
"""Lists with one entry per access. Configs tuned elsewhere also count the accesses of code variants
that are not emitted; surplus entries say nothing about this kernel and are dropped."""


def check_value(key: str, slot: Slot, value: Any) -> Any:
    """The value, if the slot takes it."""
    if not slot.valid.contains(value):
        choices = [str(choice) for choice in getattr(slot.valid, "choices", ()) if choice]
        is_text = isinstance(value, str)
        near = get_close_matches(value, choices, n=1, cutoff=0.5) if is_text else []
        fix = f"did you mean {near[0]!r}?" if near else ""
        raise errors.InvalidConfigValue(
            key=key, value=repr(value), allowed=slot.valid.expects, fix=fix
        )
    if not slot.unusable or value not in slot.unusable:
        return value
    reason = slot.unusable[value]
    if "hl.barrier" in reason:
        raise errors.BarrierRequiresPersistent(pid_type=value)
    raise errors.InvalidConfig(
        problem=f"{key}={value!r} cannot be used: {reason}",
        fix=f"use {key}={slot.default!r}, or leave {key} out",
    )


def check_list(key: str, slots: tuple[Slot, ...], value: Any) -> list[Any]:
    """The list filled up with defaults, every entry checked."""
    if isinstance(value, str) and key in ("indexing", "atomic_indexing"):
        value = [value] * max(1, len(slots))
    if len(slots) == 1 and isinstance(value, (bool, int)):
        value = [value]  # what stands alone is the only entry
    if not isinstance(value, (list, tuple)):
        entries = "entry" if len(slots) == 1 else "entries"
        raise errors.InvalidConfigValue(
            key=key, value=repr(value), allowed=f"a list of {len(slots)} {entries}"
        )
    items = list(cast("list[Any]", value))
    if key == "block_sizes" and len(items) < len(slots):
        raise errors.MissingBlockSizes(
            given=len(items), needed=len(slots), slots=[slot.label for slot in slots]
        )
    _check_surplus(key, slots, items)
    checked = [
        check_value(f"{key}[{i}] ({slot.label})", slot, item)
        for i, (slot, item) in enumerate(zip(slots, items))
    ]
    return checked + [slot.default for slot in slots[len(items) :]]


def _check_surplus(key: str, slots: tuple[Slot, ...], items: list[Any]) -> None:
    surplus = items[len(slots) :]
    if key in HINT_LISTS or all(_is_neutral(key, item) for item in surplus):
        return
    labels = [slot.label for slot in slots] or "nothing: this kernel has no such entries"
    raise errors.InvalidConfigLength(
        key=key,
        given=len(items),
        needed=len(slots),
        slots=labels,
        fix=f"leave out {key}" if not slots else f"keep the first {len(slots)} entries",
    )


def _is_neutral(key: str, item: Any) -> bool:
    if key == "block_sizes":
        return False
    if key == "loop_orders":
        return isinstance(item, list) and item == sorted(cast("list[int]", item))
    return item in ((1,) if key == "l2_groupings" else (None, False, 0, ""))
