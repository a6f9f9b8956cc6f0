"""Config to Schedule: the choices that do not change the IR, resolved by slot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tilesmith.ir.function import Function
from tilesmith.ir.ops.control_flow import Loop
from tilesmith.schedule.config import Config
from tilesmith.schedule.facts.outline import AnyLoop, FunctionOutline
from tilesmith.schedule.schedule import (
    AccessOptions,
    CpuOptions,
    GridOptions,
    LoopOptions,
    Schedule,
    is_persistent,
)
from tilesmith.schedule.space.sizes import dot_minimums, pad_constants
from tilesmith.schedule.space.slots import is_flattened, is_static
from tilesmith.schedule.spec import ConfigSpec


def resolve_schedule(
    lowered: Function, spec: ConfigSpec, values: Config, symbols: Mapping[str, int]
) -> Schedule:
    """How to run a function under a normalised Config of ``spec``.

    ``lowered`` is the specification's function with reductions rolled and tiles flattened as the
    Config says; ``symbols`` has the sizes of all its blocks.
    """
    minimums = dot_minimums(spec.facts.matmuls, spec.rules.sizes)
    has_program_loop = is_persistent(values.pid_type) and bool(spec.entries.ranges)
    return Schedule(
        target=spec.target,
        symbols=symbols,
        padded=pad_constants(FunctionOutline(lowered), minimums, spec.rules.sizes),
        grids=_grid_options(spec, values),
        loops={loop.slot: _one_loop(spec, values, loop) for loop in spec.outline.loops},
        persistent_loop=_range_options(values, 0) if has_program_loop else LoopOptions(),
        accesses=_access_options(spec, values),
        atomics={
            op.slot: AccessOptions(_at(values, "atomic_indexing", i, "pointer"))
            for i, op in enumerate(spec.entries.atomics)
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


def _at(values: Mapping[str, Any], key: str, index: int, default: Any) -> Any:
    items = values.get(key) or []
    return items[index] if index < len(items) else default


def _order(spec: ConfigSpec, values: Config, loop: AnyLoop) -> tuple[int, ...]:
    if is_flattened(spec.entries, values, loop):
        return (0,)
    identity = tuple(range(len(loop.blocks)))
    for i, other in enumerate(spec.entries.ordered):
        if other is loop:
            return tuple(_at(values, "loop_orders", i, identity))
    return identity


def _grid_options(spec: ConfigSpec, values: Config) -> dict[int, GridOptions]:
    groupings = {id(grid): i for i, grid in enumerate(spec.entries.grouped)}
    found: dict[int, GridOptions] = {}
    for grid in spec.outline.grids:
        position = groupings.get(id(grid))
        grouping = 1 if position is None else _at(values, "l2_groupings", position, 1)
        found[grid.slot] = GridOptions(_order(spec, values, grid), grouping)
    return found


def _range_options(values: Config, position: int) -> LoopOptions:
    return LoopOptions(
        unroll_factor=_at(values, "range_unroll_factors", position, 0),
        num_stages=_at(values, "range_num_stages", position, 0),
        multi_buffer=_at(values, "range_multi_buffers", position, None),
        flatten=_at(values, "range_flattens", position, None),
        warp_specialize=_at(values, "range_warp_specializes", position, None),
    )


def _one_loop(spec: ConfigSpec, values: Config, loop: Loop) -> LoopOptions:
    order = _order(spec, values, loop)
    if is_static(spec.entries, values, loop):
        return LoopOptions(order=order, is_static=True)
    # A loop of several axes takes the options of its innermost one, where the work is.
    position = spec.entries.ranges_of(loop)[order[-1]]
    options = replace(_range_options(values, position), order=order)
    return replace(options, num_stages=1) if loop.is_ordered else options


def _access_options(spec: ConfigSpec, values: Config) -> dict[int, AccessOptions]:
    entries = spec.entries
    evictions = {id(op): i for i, op in enumerate(entries.evictable)}
    loads = {id(op): i for i, op in enumerate(entries.loads)}
    stores = {id(op): i for i, op in enumerate(entries.stores)}
    found: dict[int, AccessOptions] = {}
    for i, op in enumerate(entries.accesses):
        eviction = cache = ""
        if id(op) in evictions:
            eviction = _at(values, "load_eviction_policies", evictions[id(op)], "")
        if id(op) in loads:
            cache = _at(values, "load_cache_modifiers", loads[id(op)], "")
        elif id(op) in stores:
            cache = _at(values, "store_cache_modifiers", stores[id(op)], "")
        found[op.slot] = AccessOptions(_at(values, "indexing", i, "pointer"), eviction, cache)
    return found
