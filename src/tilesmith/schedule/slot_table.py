"""Builds the slots of every key for one function on one target."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tilesmith.analysis.product_operands import has_loaded_bounds_inside
from tilesmith.ir.ops.control_flow import Grid
from tilesmith.ir.ops.reduction import Reduce, ReduceWith, Scan, ScanWith
from tilesmith.ir.traversal import walk
from tilesmith.ir.types import Dim
from tilesmith.schedule.cpu_slots import cpu_slots, program_order
from tilesmith.schedule.facts.accesses import AccessFact
from tilesmith.schedule.facts.collect import Facts
from tilesmith.schedule.facts.counted_branches import counted_loops
from tilesmith.schedule.facts.outline import FunctionOutline
from tilesmith.schedule.pid_types import PID_TYPES, is_persistent
from tilesmith.schedule.space.block_bounds import block_fragment
from tilesmith.schedule.space.fragments import (
    BooleanFragment,
    EnumFragment,
    Fragment,
    IntegerFragment,
    NumWarpsFragment,
    PermutationFragment,
    PowerOfTwoFragment,
)
from tilesmith.schedule.space.slots import Entries, RangeEntry, Slot, label_of_access, label_of_loop
from tilesmith.schedule.space.tile_sizes import most_elements, pad
from tilesmith.targets import Target

INDEXING = ("pointer", "tensor_descriptor", "block_ptr")
ATOMIC_INDEXING = ("pointer", "tensor_descriptor")
EVICTION = ("", "first", "last")
LOAD_CACHE = ("", ".cg")
STORE_CACHE = ("", ".cs", ".wt")
TRISTATE = (None, False, True)
DEFAULT_CHUNK = 4096
_SUMS = (Reduce, Scan, ReduceWith, ScanWith)


@dataclass(frozen=True)
class Kernel:
    """What the slots are made for."""

    structure: FunctionOutline
    facts: Facts
    entries: Entries
    target: Target
    pid_types: tuple[str, ...]
    """Those that this kernel can run with; the first is the default."""
    allow_warp_specialize: bool = True

    def fact_of(self, kind: str, slot: int) -> AccessFact:
        """The fact of one access."""
        is_atomic = kind == "atomic"
        return next(
            fact
            for fact in self.facts.accesses
            if fact.slot == slot and (fact.kind == "atomic") == is_atomic
        )


def _only(value: object) -> Fragment:
    return EnumFragment((value,))


def _block_slots(kernel: Kernel) -> list[Slot]:
    slots: list[Slot] = []
    for name in kernel.entries.blocks:
        fragment = block_fragment(kernel.structure, kernel.facts, kernel.target, name)
        slots.append(Slot.make(name, fragment))
    return slots


def _order_slots(kernel: Kernel) -> list[Slot]:
    slots: list[Slot] = []
    for loop in kernel.entries.ordered:
        fragment = PermutationFragment(len(loop.blocks))
        default = fragment.default
        if isinstance(loop, Grid) and not kernel.target.is_gpu:
            default = program_order(loop, kernel.facts)
        slots.append(Slot(label_of_loop(loop), fragment, fragment, default))
    return slots


def _flatten_slots(kernel: Kernel) -> list[Slot]:
    search = None if kernel.target.is_gpu else _only(False)
    return [
        Slot.make(label_of_loop(loop), BooleanFragment(), search)
        for loop in kernel.entries.flattened
    ]


def _grouping_slots(kernel: Kernel) -> list[Slot]:
    slots: list[Slot] = []
    for grid in kernel.entries.grouped:
        wide = [axis for axis in kernel.structure.axes_of(grid) if axis.extent != 1]
        search = PowerOfTwoFragment(1, 64) if len(wide) > 1 and kernel.target.is_gpu else _only(1)
        slots.append(Slot.make(label_of_loop(grid), PowerOfTwoFragment(1, 64), search))
    return slots


def _reduction_slots(kernel: Kernel) -> list[Slot]:
    return [_reduction_slot(kernel, dim) for dim in kernel.entries.rolled]


def _reduction_slot(kernel: Kernel, dim: Dim) -> Slot:
    target = kernel.target
    extent = pad(target, kernel.structure.extent(dim) or 1)
    exponents = range(6, 15) if target.is_gpu else range(10, 17)
    searched = [1 << e for e in exponents if 1 << e < extent]
    valid = ReductionLoopFragment([None, *[1 << e for e in range(31)]])
    is_possible = extent <= most_elements(target)
    search = EnumFragment([None, *searched] if is_possible else searched)
    default = None if is_possible else DEFAULT_CHUNK
    return Slot(f"the reduction over {dim}", valid, search, default)


class ReductionLoopFragment(EnumFragment):
    """None (the whole row at once) or a chunk size."""

    @property
    def expects(self) -> str:
        """The set in words."""
        return "None (the whole row at once) or a chunk size, a power of two of 8 or more"


@dataclass(frozen=True)
class RangeChoices:
    """The values of one ``range_*`` key; only those that differ in code are searched."""

    valid: Fragment
    search: Fragment


# The defaults of ``tl.range`` are: not unrolled, buffers allowed, not flattened, not specialised.
UNROLL = RangeChoices(IntegerFragment(0, 4), EnumFragment((0, 2, 3, 4)))
STAGES = RangeChoices(IntegerFragment(0, 4), IntegerFragment(0, 4))
MULTI_BUFFER = RangeChoices(EnumFragment(TRISTATE), EnumFragment((None, False)))
ON_REQUEST = RangeChoices(EnumFragment(TRISTATE), EnumFragment((None, True)))


def _range_slots(
    kernel: Kernel, choices: RangeChoices, can: Callable[[RangeEntry], bool]
) -> list[Slot]:
    neutral = _only(choices.valid.default)
    first = kernel.structure.grids[0] if kernel.structure.grids else None

    def search(entry: RangeEntry) -> Fragment:
        # All grids share one persistent loop, which takes the options of the first.
        is_shared = entry.is_persistent_loop and entry.loop is not first
        return choices.search if can(entry) and not is_shared else neutral

    return [
        Slot.make(label_of_loop(entry.loop), choices.valid, search(entry))
        for entry in kernel.entries.ranges
    ]


def _can_pipeline(entry: RangeEntry) -> bool:
    """Loads of a loop with ordered stores must not run ahead of them."""
    return entry.is_persistent_loop or not getattr(entry.loop, "is_ordered", False)


def _can_unroll(structure: FunctionOutline, entry: RangeEntry) -> bool:
    """Unrolling the program loop copies all loops inside; Triton fails on some unrolled sums."""
    if entry.is_persistent_loop:
        return not structure.loops
    return not any(isinstance(op, _SUMS) for op in walk(entry.loop.body))


def _can_flatten(structure: FunctionOutline, entry: RangeEntry) -> bool:
    """Triton reads the bounds of inner loops for one turn too many, past the end of a tensor."""
    return not has_loaded_bounds_inside(entry.loop, structure.definitions)


def _warp_specialize_slots(kernel: Kernel) -> list[Slot]:
    # Warps that only load serve warps that multiply.
    has_dots = bool(kernel.facts.matmuls)
    allowed = kernel.allow_warp_specialize and has_dots and kernel.target.capability >= 100
    # Nobody has seen specialised warps come to a meeting.
    allowed = allowed and not kernel.structure.meetings
    return _range_slots(kernel, ON_REQUEST, lambda entry: allowed)


def _range_key_slots(kernel: Kernel) -> dict[str, list[Slot]]:
    is_gpu = kernel.target.is_gpu
    has_dots = bool(kernel.facts.matmuls)
    return {
        "range_unroll_factors": _range_slots(
            kernel, UNROLL, lambda entry: is_gpu and _can_unroll(kernel.structure, entry)
        ),
        "range_warp_specializes": _warp_specialize_slots(kernel),
        "range_num_stages": _range_slots(
            kernel, STAGES, lambda entry: is_gpu and _can_pipeline(entry)
        ),
        # Only accumulators of matrix products are ever double-buffered.
        "range_multi_buffers": _range_slots(kernel, MULTI_BUFFER, lambda _: is_gpu and has_dots),
        "range_flattens": _range_slots(
            kernel, ON_REQUEST, lambda entry: is_gpu and _can_flatten(kernel.structure, entry)
        ),
    }


def _static_slots(kernel: Kernel) -> list[Slot]:
    search = None if kernel.target.is_gpu else _only(False)
    return [
        Slot.make(label_of_loop(axis.loop), BooleanFragment(), search)
        for axis in kernel.entries.static
    ]


def _indexing_slots(kernel: Kernel) -> list[Slot]:
    slots: list[Slot] = []
    for op in kernel.entries.accesses:
        fact = kernel.fact_of(op.name, op.slot)
        can = kernel.target.has_tensor_descriptors and fact.fits_descriptor
        search = EnumFragment(INDEXING[:2]) if can else _only("pointer")
        slots.append(Slot.make(label_of_access(op), EnumFragment(INDEXING), search))
    return slots


def _atomic_slots(kernel: Kernel) -> list[Slot]:
    slots: list[Slot] = []
    for op in kernel.entries.atomics:
        can = kernel.target.has_tensor_descriptors and op.order == "relaxed" and op.kind != "xchg"
        fits = can and kernel.fact_of(op.name, op.slot).fits_descriptor
        valid = EnumFragment(ATOMIC_INDEXING)
        slots.append(Slot.make(label_of_access(op), valid, None if fits else _only("pointer")))
    return slots


def _hint_slots(ops: Sequence[object], choices: tuple[str, ...], search: bool) -> list[Slot]:
    valid = EnumFragment(choices)
    narrowed = None if search else _only("")
    return [Slot.make(label_of_access(op), valid, narrowed) for op in ops]  # type: ignore[arg-type]


def list_slots(kernel: Kernel) -> dict[str, tuple[Slot, ...]]:
    """The slots of every list key."""
    entries, target = kernel.entries, kernel.target
    slots = {
        "block_sizes": _block_slots(kernel),
        "loop_orders": _order_slots(kernel),
        "flatten_loops": _flatten_slots(kernel),
        "l2_groupings": _grouping_slots(kernel),
        "reduction_loops": _reduction_slots(kernel),
        **_range_key_slots(kernel),
        "static_ranges": _static_slots(kernel),
        "indexing": _indexing_slots(kernel),
        "atomic_indexing": _atomic_slots(kernel),
        "load_eviction_policies": _hint_slots(entries.evictable, EVICTION, target.kind == "cuda"),
        "load_cache_modifiers": _hint_slots(entries.loads, LOAD_CACHE, target.is_cdna),
        "store_cache_modifiers": _hint_slots(entries.stores, STORE_CACHE, target.is_cdna),
    }
    return {key: tuple(items) for key, items in slots.items()}


def _stores_described_products(kernel: Kernel) -> bool:
    """Whether a product's tile may be stored through a descriptor."""
    stores = [fact for fact in kernel.facts.accesses if fact.kind == "store"]
    return bool(kernel.facts.matmuls) and any(fact.fits_descriptor for fact in stores)


def _searched_pid_types(kernel: Kernel) -> tuple[str, ...]:
    """Not fixed shares of tiles where the last of several programs does more.

    On an H200 that was up to 5 times as slow; who falls behind is likely to be last again.
    """
    if not counted_loops(kernel.structure):
        return kernel.pid_types
    balanced = tuple(name for name in kernel.pid_types if not is_persistent(name))
    return balanced or kernel.pid_types


def scalar_slots(kernel: Kernel, tunables: Mapping[str, Fragment]) -> dict[str, Slot]:
    """The slots of every scalar key, the user's tunables last."""
    target, has_dots = kernel.target, bool(kernel.facts.matmuls)
    max_warps = 1024 // target.warp_size
    warps = NumWarpsFragment(1, max_warps, 4)
    searched_warps = NumWarpsFragment(1, min(16, max_warps) if has_dots else max_warps, 4)
    max_stages = 4 if target.is_cdna else 8
    loops = bool(kernel.structure.loops) or bool(kernel.entries.rolled)
    stages = IntegerFragment(1, max_stages, 1) if loops else _only(1)
    built_in = {
        "num_warps": (warps, searched_warps),
        "num_stages": (IntegerFragment(1, 8, 1), stages),
        # A barrier needs all programs resident: one on each multiprocessor always is.
        "num_sm_multiplier": (_only(1), None)
        if kernel.structure.has_barrier
        else (PowerOfTwoFragment(1, 128), PowerOfTwoFragment(1, 16)),
        "waves_per_eu": (IntegerFragment(0, 4), None),
        "matrix_instr_nonkdim": (EnumFragment((0, 16, 32)), None if has_dots else _only(0)),
        "xcd_remap": (_only(False) if kernel.structure.meetings else BooleanFragment(), None),
        # Matrix instructions need more than 32 registers; ptxas then gives up.
        "maxnreg": (
            EnumFragment((None, 32, 64, 128, 256)),
            EnumFragment((None, 64, 128, 256)) if has_dots else None,
        ),
        "epilogue_subtile": (
            EnumFragment((None, 2, 4)),
            EnumFragment((None, 2)) if _stores_described_products(kernel) else _only(None),
        ),
    }
    slots = {
        name: Slot.make(name, valid, search if target.is_gpu else _only(valid.default))
        for name, (valid, search) in built_in.items()
    }
    allowed = EnumFragment(_searched_pid_types(kernel))
    slots["pid_type"] = Slot("pid_type", EnumFragment(PID_TYPES), allowed, allowed.default)
    if not target.is_gpu:
        slots.update(cpu_slots(kernel.structure, kernel.facts))
    return {**slots, **{name: Slot.make(name, item) for name, item in tunables.items()}}
