"""The choices that change the IR itself: reductions in chunks, tiles of several axes made flat."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from tilesmith.analysis.flattenable import find_flattenable
from tilesmith.ir.function import Function
from tilesmith.ir.ops.control_flow import Grid
from tilesmith.ir.types import Dim
from tilesmith.passes.flatten_tiles import flatten_tiles
from tilesmith.passes.roll_reductions import roll_reductions
from tilesmith.schedule.facts.outline import FunctionOutline
from tilesmith.schedule.space.slots import Entries


def find_flattenable_grids(structure: FunctionOutline) -> tuple[Grid, ...]:
    """Grids over several axes that can run over one flat index instead."""
    slots = find_flattenable(structure.function)
    return tuple(grid for grid in structure.grids if grid.slot in slots)


def _fresh_name(function: Function, taken: set[str]) -> str:
    symbols = {item.name for item in (*function.blocks, *function.sizes)} | taken
    name, counter = "chunk", 1
    while name in symbols:
        name, counter = f"chunk_{counter}", counter + 1
    return name


def _roll(
    function: Function, entries: Entries, values: Mapping[str, Any]
) -> tuple[Function, dict[str, int]]:
    sizes: dict[str, int] = {}
    names: dict[Dim, str] = {}
    for dim, chunk in zip(entries.rolled, values.get("reduction_loops") or []):
        if chunk is not None:
            names[dim] = _fresh_name(function, set(sizes))
            sizes[names[dim]] = chunk
    return (roll_reductions(function, names) if names else function), sizes


def apply_structural_choices(
    function: Function, entries: Entries, values: Mapping[str, Any], symbols: Mapping[str, int]
) -> tuple[Function, dict[str, int]]:
    """The function with reductions rolled and tiles flattened, and the sizes of all its symbols."""
    rolled, chunks = _roll(function, entries, values)
    marks = zip(entries.flattened, values.get("flatten_loops") or [])
    slots = {grid.slot for grid, is_flat in marks if is_flat}
    flat, joined = flatten_tiles(rolled, slots) if slots else (rolled, {})
    sizes = {**symbols, **chunks}
    for name, parts in joined.items():
        sizes[name] = prod(sizes[part] for part in parts)
    return flat, sizes
