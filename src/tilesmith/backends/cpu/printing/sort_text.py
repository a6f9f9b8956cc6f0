"""Sorting as one statement: the lines of a tile in memory are put in order where they lie."""

from __future__ import annotations

from tilesmith.backends.cpu.nests import SortStep
from tilesmith.backends.cpu.printing.scene import Scene


def print_sort(scene: Scene, step: SortStep) -> None:
    """``sort(tile, axis)``; a line of one element needs none."""
    op = step.op
    if op.x.tile.shape[op.axis].is_one:
        return
    scene.lines.quote([op.loc])
    scene.lines.put(f"sort({scene.buffer(op.result)}, {op.axis})", "ascending, where it lies")
