"""The slots of every key for one function on one GPU. A key without slots has no effect there."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilesmith.backends.triton.space.conditions import PID_TYPES, find_disallowed
from tilesmith.backends.triton.workarounds.loop_limits import searches_flattened, searches_unrolled
from tilesmith.ir.ops.memory import Load, Store
from tilesmith.schedule.config import is_persistent
from tilesmith.schedule.facts.accesses import AccessFact
from tilesmith.schedule.facts.outline import counted_loops
from tilesmith.schedule.rules import TargetedKernel
from tilesmith.schedule.space.fragments import (
    BooleanFragment,
    EnumFragment,
    Fragment,
    IntegerFragment,
    NumWarpsFragment,
    PowerOfTwoFragment,
)
from tilesmith.schedule.space.sizes import common_lists, only, static_range_slots
from tilesmith.schedule.space.slots import RangeEntry, Slot, label_of_access, label_of_loop

INDEXING = ("pointer", "tensor_descriptor", "block_ptr")
ATOMIC_INDEXING = ("pointer", "tensor_descriptor")
EVICTION = ("", "first", "last")
LOAD_CACHE = ("", ".cg")
STORE_CACHE = ("", ".cs", ".wt")
TRISTATE = (None, False, True)


def _fact_of(kernel: TargetedKernel, kind: str, slot: int) -> AccessFact:
    facts = [fact for fact in kernel.facts.accesses if fact.slot == slot]
    return next(fact for fact in facts if (fact.kind == "atomic") == (kind == "atomic"))


def _grouping_slots(kernel: TargetedKernel) -> list[Slot]:
    slots: list[Slot] = []
    for grid in kernel.entries.grouped:
        wide = [axis for axis in kernel.outline.axes_of(grid) if axis.extent != 1]
        search = PowerOfTwoFragment(1, 64) if len(wide) > 1 else only(1)
        slots.append(Slot.make(label_of_loop(grid), PowerOfTwoFragment(1, 64), search))
    return slots


RangeChoices = tuple[Fragment, Fragment]
"""Valid values of a ``range_*`` key, and those that are searched: only what differs in code."""
# The defaults of ``tl.range`` are: not unrolled, buffers allowed, not flattened, not specialised.
UNROLL = (IntegerFragment(0, 4), EnumFragment((0, 2, 3, 4)))
STAGES = (IntegerFragment(0, 4), IntegerFragment(0, 4))
MULTI_BUFFER = (EnumFragment(TRISTATE), EnumFragment((None, False)))
ON_REQUEST = (EnumFragment(TRISTATE), EnumFragment((None, True)))


def _range_slots(
    kernel: TargetedKernel, choices: RangeChoices, can: Callable[[RangeEntry], bool]
) -> list[Slot]:
    valid, searched = choices
    first = kernel.outline.grids[0] if kernel.outline.grids else None

    def search(entry: RangeEntry) -> Fragment:
        # All grids share one persistent loop, which takes the options of the first.
        is_shared = entry.is_persistent_loop and entry.loop is not first
        return searched if can(entry) and not is_shared else only(valid.default)

    return [
        Slot.make(label_of_loop(entry.loop), valid, search(entry))
        for entry in kernel.entries.ranges
    ]


def _can_pipeline(entry: RangeEntry) -> bool:
    """Loads of a loop with ordered stores must not run ahead of them."""
    return entry.is_persistent_loop or not getattr(entry.loop, "is_ordered", False)


def _range_key_slots(kernel: TargetedKernel) -> dict[str, list[Slot]]:
    outline, has_dots = kernel.outline, bool(kernel.facts.matmuls)
    # Warps that only load serve warps that multiply. They were never tried with barriers of a group
    # of programs.
    may_specialize = kernel.allow_warp_specialize and has_dots and not outline.group_barriers
    slots = {
        "range_unroll_factors": _range_slots(
            kernel, UNROLL, lambda entry: searches_unrolled(outline, entry)
        ),
        "range_warp_specializes": _range_slots(kernel, ON_REQUEST, lambda _: may_specialize),
        "range_num_stages": _range_slots(kernel, STAGES, _can_pipeline),
        # Only accumulators of matrix products are ever double-buffered.
        "range_multi_buffers": _range_slots(kernel, MULTI_BUFFER, lambda _: has_dots),
        "range_flattens": _range_slots(
            kernel, ON_REQUEST, lambda entry: searches_flattened(outline, entry)
        ),
    }
    # Triton gives warps different roles from Blackwell on.
    if kernel.target.capability < 100:
        del slots["range_warp_specializes"]
    return slots


def _indexing_slots(kernel: TargetedKernel) -> list[Slot]:
    slots: list[Slot] = []
    for op in kernel.entries.accesses:
        fact = _fact_of(kernel, op.name, op.slot)
        can = kernel.target.has_tensor_descriptors and fact.fits_descriptor
        search = EnumFragment(INDEXING[:2]) if can else only("pointer")
        slots.append(Slot.make(label_of_access(op), EnumFragment(INDEXING), search))
    return slots


def _atomic_slots(kernel: TargetedKernel) -> list[Slot]:
    slots: list[Slot] = []
    for op in kernel.entries.atomics:
        can = kernel.target.has_tensor_descriptors and op.order == "relaxed" and op.kind != "xchg"
        fits = can and _fact_of(kernel, op.name, op.slot).fits_descriptor
        valid = EnumFragment(ATOMIC_INDEXING)
        slots.append(Slot.make(label_of_access(op), valid, None if fits else only("pointer")))
    return slots


def _hint_slots(
    ops: Sequence[Load | Store], choices: tuple[str, ...], is_searched: bool = True
) -> list[Slot]:
    valid = EnumFragment(choices)
    narrowed = None if is_searched else only("")
    return [Slot.make(label_of_access(op), valid, narrowed) for op in ops]


def list_slots(kernel: TargetedKernel) -> dict[str, tuple[Slot, ...]]:
    """The slots of every list key."""
    entries, target = kernel.entries, kernel.target
    common = common_lists(kernel.outline, kernel.facts, entries, kernel.rules.sizes)
    slots = {
        "block_sizes": common["block_sizes"],
        "loop_orders": common["loop_orders"],
        "flatten_loops": [
            Slot.make(label_of_loop(loop), BooleanFragment()) for loop in entries.flattened
        ],
        "l2_groupings": _grouping_slots(kernel),
        "reduction_loops": common["reduction_loops"],
        **_range_key_slots(kernel),
        "static_ranges": static_range_slots(entries),
        "indexing": _indexing_slots(kernel),
        "atomic_indexing": _atomic_slots(kernel),
        "load_eviction_policies": _hint_slots(entries.evictable, EVICTION, target.kind == "cuda"),
    }
    if target.is_cdna:
        slots["load_cache_modifiers"] = _hint_slots(entries.loads, LOAD_CACHE)
        slots["store_cache_modifiers"] = _hint_slots(entries.stores, STORE_CACHE)
    return {key: tuple(items) for key, items in slots.items()}


def _stores_described_products(kernel: TargetedKernel) -> bool:
    """Whether a product's tile may be stored through a descriptor."""
    stores = [fact for fact in kernel.facts.accesses if fact.kind == "store"]
    return bool(kernel.facts.matmuls) and any(fact.fits_descriptor for fact in stores)


def _pid_type_slot(kernel: TargetedKernel) -> Slot:
    unusable = find_disallowed(kernel.outline)
    usable = tuple(name for name in PID_TYPES if name not in unusable)
    # Not fixed shares of tiles where the last of several programs does more: on an H200 that was
    # up to 5 times as slow; who falls behind is likely to be last again.
    balanced = usable
    if counted_loops(kernel.outline):
        balanced = tuple(name for name in usable if not is_persistent(name)) or usable
    searched = EnumFragment(balanced)
    return Slot("pid_type", EnumFragment(PID_TYPES), searched, searched.default, unusable)


def scalar_slots(kernel: TargetedKernel) -> dict[str, Slot]:
    """The slots of every scalar key."""
    target, has_dots = kernel.target, bool(kernel.facts.matmuls)
    max_warps = 1024 // target.warp_size
    warps = NumWarpsFragment(1, max_warps, 4)
    searched_warps = NumWarpsFragment(1, min(16, max_warps) if has_dots else max_warps, 4)
    max_stages = 4 if target.is_cdna else 8
    loops = bool(kernel.outline.loops) or bool(kernel.entries.rolled)
    stages = IntegerFragment(1, max_stages, 1) if loops else only(1)
    choices: dict[str, tuple[Fragment, Fragment | None]] = {
        "num_warps": (warps, searched_warps),
        "num_stages": (IntegerFragment(1, 8, 1), stages),
        # A barrier needs all programs resident: one on each multiprocessor always is.
        "num_sm_multiplier": (only(1), None)
        if kernel.outline.has_barrier
        else (PowerOfTwoFragment(1, 128), PowerOfTwoFragment(1, 16)),
        **_vendor_choices(kernel),
    }
    slots = {name: Slot.make(name, valid, search) for name, (valid, search) in choices.items()}
    return {**slots, "pid_type": _pid_type_slot(kernel)}


def _vendor_choices(kernel: TargetedKernel) -> dict[str, tuple[Fragment, Fragment | None]]:
    """Scalar keys that only some devices have."""
    target, has_dots = kernel.target, bool(kernel.facts.matmuls)
    choices: dict[str, tuple[Fragment, Fragment | None]] = {}
    if target.kind == "hip":
        choices["waves_per_eu"] = (IntegerFragment(0, 4), None)
    if target.is_cdna:
        nonkdim = EnumFragment((0, 16, 32))
        choices["matrix_instr_nonkdim"] = (nonkdim, None if has_dots else only(0))
        is_fixed = bool(kernel.outline.group_barriers)
        choices["xcd_remap"] = (only(False) if is_fixed else BooleanFragment(), None)
    if target.kind == "cuda":
        # Matrix instructions need more than 32 registers; ptxas then gives up.
        searched = EnumFragment((None, 64, 128, 256)) if has_dots else None
        choices["maxnreg"] = (EnumFragment((None, 32, 64, 128, 256)), searched)
    if target.has_tensor_descriptors:
        searched = EnumFragment((None, 2)) if _stores_described_products(kernel) else only(None)
        choices["epilogue_subtile"] = (EnumFragment((None, 2, 4)), searched)
    return choices
