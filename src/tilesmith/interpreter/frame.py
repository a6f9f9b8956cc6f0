"""The state of a run: what every value holds and how long every tile axis is right now."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from tilesmith.interpreter.access import AffineTile
from tilesmith.interpreter.prepare import PreparedFunction
from tilesmith.interpreter.races import RaceDetector
from tilesmith.interpreter.sampling import Sampling
from tilesmith.interpreter.torch_dtypes import to_torch
from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.types import Dim, Shape, TileType, Value

Tile = torch.Tensor | AffineTile | int | bool
"""Scalars of integer and bool type are Python's; float scalars are 0-d tensors; all else is a
tensor of exactly the valid lanes, or an ``AffineTile`` that knows its elements unstored."""

Evaluator = Callable[[Any, "Frame"], "Tile | None"]
Evaluators = Mapping[type[Operation], Evaluator]


class Frame:
    """What values hold and symbols measure: ``extents`` follow the loops, ``sizes`` stay."""

    def __init__(
        self,
        prepared: PreparedFunction,
        evaluators: Evaluators,
        sizes: Mapping[str, int],
        *,
        checked: bool,
    ) -> None:
        self.prepared = prepared
        self.evaluators = evaluators
        self.sizes = sizes
        self.extents: dict[str, int] = dict(sizes)
        self.values: dict[Value, Any] = {}
        self.uncropped: dict[Value, Tile] = {}
        """What stands behind values that an enclosing loop over one of their axes has cropped."""
        self.written: set[Value] = set()
        """Tensor parameters whose storage this function writes: reading them must copy."""
        self.checked = checked
        self.races: RaceDetector | None = None
        self.sampling: Sampling | None = None
        self.program: tuple[int, ...] = ()
        """The first indices of the tiles of the program that runs."""
        self.device = torch.device("cpu")

    def run(self, region: Region) -> None:
        """Evaluate all ops of a region in order."""
        evaluators, values = self.evaluators, self.values
        for op in region.ops:
            result = evaluators[type(op)](op, self)
            if result is not None:
                values[op.results[0]] = result

    def lengths(self, shape: Shape) -> tuple[int, ...]:
        """The present length of each dimension."""
        return tuple([length_of(dim, self.extents) for dim in shape])

    def tensor(self, value: Value) -> torch.Tensor:
        """What a value holds, as a tensor."""
        return self.as_tensor(self.values[value], value.tile)

    def as_tensor(self, tile: Tile, tile_type: TileType) -> torch.Tensor:
        """A tile in whatever form, as a tensor of its element type."""
        if isinstance(tile, torch.Tensor):
            return tile
        if isinstance(tile, AffineTile):
            return tile.tensor(tile_type.dtype, self.device)
        return torch.full((), tile, dtype=to_torch(tile_type.dtype), device=self.device)


def length_of(dim: Dim, extents: Mapping[Any, Any]) -> int:
    """The length of a dimension where every symbol has its present extent."""
    length = 1
    for factor in dim.factors:
        length *= extents.get(factor, factor)
    return length


def from_tensor(result: torch.Tensor, tile_type: TileType) -> Tile:
    """A computed tensor in the form frames hold: integer and bool scalars become Python's."""
    if tile_type.shape or tile_type.dtype.is_float:
        return result
    return result.item()  # type: ignore[return-value]
