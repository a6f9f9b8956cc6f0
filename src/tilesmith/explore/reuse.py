"""How many of the bytes that programs ask for have been touched before, by themselves or others.

Boxes of one tensor cut it into cells; a cell is touched or not. Where that would be too many cells,
boxes count as new where no equal one was there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np

from tilesmith.explore.tiles import Box, Picture, Range

MAX_CELLS = 4_000_000


@dataclass
class Touched:
    """Which cells of one tensor were touched."""

    edges: Sequence[Sequence[int]]
    """Along every dimension where a box begins or ends."""
    _places: list[dict[int, int]] = field(default_factory=list[dict[int, int]])
    _seen: set[tuple[Range, ...]] = field(default_factory=set[tuple[Range, ...]])

    def __post_init__(self) -> None:
        counts = [max(0, len(edges) - 1) for edges in self.edges]
        self._places = [{edge: i for i, edge in enumerate(edges)} for edges in self.edges]
        self._widths = [np.diff(np.asarray(edges)) for edges in self.edges]
        is_small = prod(counts) <= MAX_CELLS
        self._cells = np.zeros(counts, dtype=bool) if is_small else None

    def forget(self) -> None:
        """As if nothing had been touched."""
        self._seen.clear()
        if self._cells is not None:
            self._cells[...] = False

    def add(self, box: Box) -> int:
        """How many elements of a box are touched for the first time."""
        if self._cells is None:
            is_new = box.ranges not in self._seen
            self._seen.add(box.ranges)
            return box.elements if is_new else 0
        places = zip(self._places, box.ranges)
        part = tuple(slice(at[first], at[first + count]) for at, (first, count) in places)
        fresh = ~self._cells[part]
        self._cells[part] = True
        volume = fresh.astype(np.int64)
        for axis, cut in reversed(list(enumerate(part))):
            volume = (volume * self._widths[axis][cut]).sum(-1)
        whole = prod(count for _, count in box.ranges)
        return round(int(volume) * box.elements / whole) if whole else 0


@dataclass(frozen=True)
class StepBytes:
    """Of one step: asked for, first touched by its program, first touched by any program shown."""

    asked: int
    new_to_program: int
    new: int


def count_reuse(
    picture: Picture, tensors: Sequence[str], item_bytes: Mapping[str, int]
) -> list[list[StepBytes]]:
    """For every program, of all its steps. ``tensors`` has the tensor of every access."""
    boxes: dict[str, list[Box]] = {name: [] for name in tensors}
    for program in picture.programs:
        for box in (box for step in program.steps for box in step.boxes):
            boxes[tensors[box.access]].append(box)
    of_all = {name: Touched(_edges(found)) for name, found in boxes.items()}
    of_one = {name: Touched(_edges(found)) for name, found in boxes.items()}
    counted: list[list[StepBytes]] = []
    for program in picture.programs:
        for touched in of_one.values():
            touched.forget()
        counted.append([])
        for step in program.steps:
            sums = [0, 0, 0]
            for box in step.boxes:
                name = tensors[box.access]
                size = item_bytes[name]
                sums[0] += box.elements * size
                sums[1] += of_one[name].add(box) * size
                sums[2] += of_all[name].add(box) * size
            counted[-1].append(StepBytes(*sums))
    return counted


def _edges(boxes: Iterable[Box]) -> list[list[int]]:
    found: list[set[int]] = []
    for box in boxes:
        found = found or [set() for _ in box.ranges]
        for edges, (first, count) in zip(found, box.ranges):
            edges |= {first, first + count}
    return [sorted(edges) for edges in found]
