"""Config to Schedule: the choices that do not change the IR, resolved by slot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tilesmith.ir.function import Function
from tilesmith.ir.ops.control_flow import Grid, Loop
from tilesmith.ir.ops.memory import Load, Store
from tilesmith.schedule.config import Config
from tilesmith.schedule.facts.outline import AnyLoop, FunctionOutline
from tilesmith.schedule.schedule import (
    AccessOptions,
    CpuOptions,
    GridOptions,
    LoopOptions,
    Schedule,
)
from tilesmith.schedule.space.keys import KEYS_BY_NAME, is_persistent
from tilesmith.schedule.space.sizes import dot_minimums, pad_constants
from tilesmith.schedule.space.slots import Entries, entry_of, is_flattened, is_static
from tilesmith.schedule.spec import ConfigSpec


def resolve_schedule(
    lowered: Function, spec: ConfigSpec, values: Config, symbols: Mapping[str, int]
) -> Schedule:
    """How to run a function under a normalised Config of ``spec``.

    ``lowered`` is the specification's function with reductions rolled and tiles flattened as the
    Config says; ``symbols`` has the sizes of all its blocks.
    """
    entries = spec.entries
    minimums = dot_minimums(spec.facts.matmuls, spec.rules.sizes)
    has_program_loop = is_persistent(values.pid_type) and bool(entries.ranges)
    return Schedule(
        target=spec.target,
        symbols=symbols,
        padded=pad_constants(FunctionOutline(lowered), minimums, spec.rules.sizes),
        grids={grid.slot: _grid_options(spec, values, grid) for grid in spec.outline.grids},
        loops={loop.slot: _one_loop(spec, values, loop) for loop in spec.outline.loops},
        persistent_loop=_range_options(values, 0) if has_program_loop else LoopOptions(),
        accesses={op.slot: _access_options(entries, values, op) for op in entries.accesses},
        atomics={
            op.slot: AccessOptions(entry_of(values, "atomic_indexing", entries.atomics, op))
            for op in entries.atomics
        },
        pid_type=values.pid_type,
        num_warps=values.num_warps,
        num_stages=values.num_stages,
        num_sm_multiplier=values.num_sm_multiplier,
        maxnreg=values.maxnreg,
        store_parts=values.epilogue_subtile or 1,
        backend_options={key: values[key] for key in spec.rules.option_keys if values.get(key)},
        cpu=CpuOptions(
            threads=values.cpu_threads,
            unroll=values.cpu_unroll,
            streaming_stores=values.cpu_streaming_stores,
            is_dynamic=values.cpu_schedule == "dynamic",
        ),
    )


def _order(spec: ConfigSpec, values: Config, loop: AnyLoop) -> tuple[int, ...]:
    if is_flattened(spec.entries, values, loop):
        return (0,)
    order = entry_of(values, "loop_orders", spec.entries.ordered, loop)
    return tuple(order or range(len(loop.blocks)))


def _grid_options(spec: ConfigSpec, values: Config, grid: Grid) -> GridOptions:
    grouping = entry_of(values, "l2_groupings", spec.entries.grouped, grid)
    return GridOptions(_order(spec, values, grid), grouping)


def _range_options(values: Config, position: int) -> LoopOptions:
    def entry(key: str) -> Any:
        items = values.get(key) or []
        return items[position] if position < len(items) else KEYS_BY_NAME[key].neutral

    return LoopOptions(
        unroll_factor=entry("range_unroll_factors"),
        num_stages=entry("range_num_stages"),
        multi_buffer=entry("range_multi_buffers"),
        flatten=entry("range_flattens"),
        warp_specialize=entry("range_warp_specializes"),
    )


def _one_loop(spec: ConfigSpec, values: Config, loop: Loop) -> LoopOptions:
    order = _order(spec, values, loop)
    if is_static(spec.entries, values, loop):
        return LoopOptions(order=order, is_static=True)
    # A loop of several axes takes the options of its innermost one, where the work is.
    position = spec.entries.ranges_of(loop)[order[-1]]
    options = replace(_range_options(values, position), order=order)
    return replace(options, num_stages=1) if loop.is_ordered else options


def _access_options(entries: Entries, values: Config, op: Load | Store) -> AccessOptions:
    kind, owners = ("load", entries.loads) if isinstance(op, Load) else ("store", entries.stores)
    return AccessOptions(
        entry_of(values, "indexing", entries.accesses, op),
        entry_of(values, "load_eviction_policies", entries.evictable, op),
        entry_of(values, f"{kind}_cache_modifiers", owners, op),
    )
