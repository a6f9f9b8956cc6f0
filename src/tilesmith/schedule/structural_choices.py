"""The choices that change the IR itself: reductions in chunks, tiles of several axes made flat."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilesmith.ir.function import Function
from tilesmith.ir.types import Dim
from tilesmith.schedule.slots import Entries
from tilesmith.schedule.structure import AnyLoop, Structure


def find_rollable(function: Function) -> tuple[Dim, ...]:
    """Dimensions whose reductions can run in chunks, in program order."""
    return ()


def find_flattenable_loops(structure: Structure) -> tuple[AnyLoop, ...]:
    """Loops over several axes that can run over one flat index instead."""
    return ()


def apply_structural_choices(
    function: Function, entries: Entries, values: Mapping[str, Any]
) -> tuple[Function, dict[str, int]]:
    """The function with reductions rolled and tiles flattened, and the sizes of new blocks."""
    return function, {}
