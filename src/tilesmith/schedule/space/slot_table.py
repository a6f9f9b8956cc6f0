"""The slots of the keys that every backend has: block sizes, orders, flattening, chunks of rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tilesmith.ir.ops.control_flow import Grid
from tilesmith.ir.types import Dim
from tilesmith.schedule.facts.fact_set import FactSet
from tilesmith.schedule.facts.outline import FunctionOutline
from tilesmith.schedule.space.fragments import (
    BooleanFragment,
    EnumFragment,
    Fragment,
    PermutationFragment,
)
from tilesmith.schedule.space.sizes import SizeRules, block_fragment
from tilesmith.schedule.space.slots import Entries, Slot, label_of_loop

DEFAULT_CHUNK = 4096


@dataclass(frozen=True)
class KernelSlots:
    """The slots of one kernel on one target, by key."""

    lists: dict[str, tuple[Slot, ...]]
    scalars: dict[str, Slot] = field(default_factory=dict[str, Slot])


class ReductionLoopFragment(EnumFragment):
    """None (the whole row at once) or a chunk size."""

    @property
    def expects(self) -> str:
        """The set in words."""
        return "None (the whole row at once) or a chunk size, a power of two of 8 or more"


def only(value: object) -> Fragment:
    """Nothing to search: one value."""
    return EnumFragment((value,))


def common_lists(
    outline: FunctionOutline,
    facts: FactSet,
    entries: Entries,
    rules: SizeRules,
    program_order: Callable[[Grid, FactSet], list[int]] | None = None,
) -> dict[str, tuple[Slot, ...]]:
    """One slot for each position; ``program_order`` is the default order of a grid's axes."""
    blocks = [
        Slot.make(name, block_fragment(outline, facts, rules, name)) for name in entries.blocks
    ]
    orders: list[Slot] = []
    for loop in entries.ordered:
        fragment = PermutationFragment(len(loop.blocks))
        default = fragment.default
        if program_order is not None and isinstance(loop, Grid):
            default = program_order(loop, facts)
        orders.append(Slot(label_of_loop(loop), fragment, fragment, default))
    return {
        "block_sizes": tuple(blocks),
        "loop_orders": tuple(orders),
        "flatten_loops": tuple(
            Slot.make(label_of_loop(loop), BooleanFragment(), only(False))
            for loop in entries.flattened
        ),
        "reduction_loops": tuple(_chunk_slot(outline, rules, dim) for dim in entries.rolled),
    }


def _chunk_slot(outline: FunctionOutline, rules: SizeRules, dim: Dim) -> Slot:
    extent = rules.pad(outline.extent(dim) or 1)
    searched = [chunk for chunk in rules.chunks if chunk < extent]
    valid = ReductionLoopFragment([None, *[1 << e for e in range(31)]])
    is_possible = extent <= rules.most_elements
    search = EnumFragment([None, *searched] if is_possible else searched)
    default = None if is_possible else DEFAULT_CHUNK
    return Slot(f"the reduction over {dim}", valid, search, default)
