"""Which parameters of a launch are read off its tensors, all in one go."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tilesmith.artifacts import LaunchParameter
from tilesmith.runtime.calls.reader import Layout, TensorReader

_EXTENT = re.compile(r"(?P<tensor>.+)\.(?P<field>size|stride)\((?P<axis>\d+)\)")
_ADDRESS = 0
_FIELDS = {"size": 1, "stride": 2}


@dataclass(frozen=True)
class ReadingPlan:
    """What native code reads, by positions of parameters."""

    tensors: tuple[int, ...]
    """Those that are tensors."""
    positions: tuple[int, ...]
    """Those that are read: tensors, for their address, and their sizes and strides."""
    entries: tuple[tuple[int, int, int], ...]
    """For each position a number of a tensor, what of it, and an axis."""

    def make_layout(self, reader: TensorReader) -> Layout:
        """What reads them."""
        return reader.Layout(len(self.tensors), self.entries)


def plan_reading(parameters: Sequence[LaunchParameter]) -> ReadingPlan:
    """Tensors, and expressions such as ``x.size(0)`` where ``x`` is one of them."""
    tensors = [position for position, item in enumerate(parameters) if item.is_tensor]
    # Expressions that make a tensor may look alike: each tensor has a number of its own.
    order = {position: number for number, position in enumerate(tensors)}
    numbers = {parameters[position].source: number for position, number in order.items()}
    entries: dict[int, tuple[int, int, int]] = {}
    for position, item in enumerate(parameters):
        found = None if item.is_tensor else _EXTENT.fullmatch(item.source)
        if item.is_tensor:
            entries[position] = (order[position], _ADDRESS, 0)
        elif found is not None and found["tensor"] in numbers:
            tensor = numbers[found["tensor"]]
            entries[position] = (tensor, _FIELDS[found["field"]], int(found["axis"]))
    return ReadingPlan(tuple(tensors), tuple(entries), tuple(entries.values()))
