"""The choices that change the IR itself: reductions in chunks, tiles of several axes made flat."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilesmith.analysis.rollable import find_rollable_dims
from tilesmith.ir.function import Function
from tilesmith.ir.types import Dim
from tilesmith.passes.roll_reductions import roll_reductions
from tilesmith.schedule.slots import Entries
from tilesmith.schedule.structure import AnyLoop, Structure


def find_rollable(function: Function) -> tuple[Dim, ...]:
    """Dimensions whose reductions can run in chunks, in program order."""
    return find_rollable_dims(function)


def find_flattenable_loops(structure: Structure) -> tuple[AnyLoop, ...]:
    """Loops over several axes that can run over one flat index instead."""
    return ()


def _fresh_name(function: Function, wanted: str, taken: set[str]) -> str:
    symbols = {item.name for item in (*function.blocks, *function.sizes)} | taken
    name, counter = wanted, 1
    while name in symbols:
        name, counter = f"{wanted}_{counter}", counter + 1
    return name


def apply_structural_choices(
    function: Function, entries: Entries, values: Mapping[str, Any]
) -> tuple[Function, dict[str, int]]:
    """The function with reductions rolled and tiles flattened, and the sizes of new blocks."""
    sizes: dict[str, int] = {}
    names: dict[Dim, str] = {}
    for dim, chunk in zip(entries.rolled, values.get("reduction_loops") or []):
        if chunk is not None:
            names[dim] = _fresh_name(function, "chunk", set(sizes))
            sizes[names[dim]] = chunk
    rolled = roll_reductions(function, names) if names else function
    return rolled, sizes
