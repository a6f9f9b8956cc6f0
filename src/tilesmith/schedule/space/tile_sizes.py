"""Physical sizes of tiles: block symbols take their configured size, constants are padded.

On GPUs tiles have sides that are powers of two, 16 or more in matrix products; on CPUs any.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod

from tilesmith.ir.types import Dim, Shape
from tilesmith.ir.values import Value
from tilesmith.schedule.facts.collect import MatmulFact
from tilesmith.schedule.facts.outline import FunctionOutline
from tilesmith.schedule.schedule import next_power_of_2
from tilesmith.targets import Target

MAX_TILE_ELEMENTS = 1 << 20
"""The most elements that Triton allows in one tile."""
MAX_CPU_TILE_ELEMENTS = 1 << 26
"""Tiles that are kept lie in memory, one set for each thread."""
MIN_DOT_SIDE = 16


@dataclass(frozen=True)
class TileSizes:
    """Sizes under one Config. ``rolled`` dimensions are walked in chunks of the given size."""

    symbols: Mapping[str, int]
    padded: Mapping[int, int]
    rolled: Mapping[Dim, int] = field(default_factory=dict[Dim, int])

    def size(self, dim: Dim) -> int:
        """The physical size of one dimension."""
        if self.rolled and dim in self.rolled:
            return self.rolled[dim]
        size = 1
        for factor in dim.factors:
            is_symbol = isinstance(factor, str)
            size *= self.symbols[factor] if is_symbol else self.padded.get(factor, factor)
        return size

    def numel(self, shape: Shape) -> int:
        """The physical number of elements of a tile."""
        total = 1
        for dim in shape:
            total *= self.size(dim)
        return total


def most_elements(target: Target) -> int:
    """The most elements that one tile may have."""
    return MAX_TILE_ELEMENTS if target.is_gpu else MAX_CPU_TILE_ELEMENTS


def pad(target: Target, size: int) -> int:
    """The physical size of an axis of that many elements."""
    return next_power_of_2(size) if target.is_gpu else max(1, size)


def dot_minimums(matmuls: tuple[MatmulFact, ...], target: Target) -> dict[Dim, int]:
    """The least physical size of every dimension that takes part in a matrix product."""
    found: dict[Dim, int] = {}
    if not target.is_gpu:
        return found
    for fact in matmuls:
        minimums = (MIN_DOT_SIDE, MIN_DOT_SIDE, fact.min_k)
        for axis, minimum in zip(fact.axes, minimums):
            dim, least = _deciding_factor(axis.dim, minimum)
            if not dim.is_one:
                found[dim] = max(least, found.get(dim, 1))
    return found


def _deciding_factor(dim: Dim, minimum: int) -> tuple[Dim, int]:
    """What must be how large for ``dim`` to reach a size: of ``block * 2`` half of it is enough."""
    if len(dim.symbols) != 1:
        return dim, minimum
    constants = prod(next_power_of_2(n) for n in dim.factors if isinstance(n, int))
    return Dim.of(dim.symbols[0]), -(-minimum // constants)


def pad_constants(
    structure: FunctionOutline, minimums: Mapping[Dim, int], target: Target
) -> dict[int, int]:
    """The physical size of every constant factor but 1 in any tile's shape (0 becomes 1)."""
    if not target.is_gpu:
        return {}
    dims = {dim for value in structure.tile_values for dim in value.tile.shape}
    factors = [factor for dim in dims for factor in dim.factors]
    constants = sorted({factor for factor in factors if isinstance(factor, int) and factor != 1})
    return {n: max(next_power_of_2(n), minimums.get(Dim((n,)), 1)) for n in constants}


def size_symbols(
    structure: FunctionOutline, minimums: Mapping[Dim, int], target: Target
) -> dict[str, int]:
    """The physical size of every runtime size, at its hint."""
    return {
        size.name: max(pad(target, size.hint), minimums.get(Dim.of(size.name), 1))
        for size in structure.function.sizes
    }


def useful_elements(structure: FunctionOutline) -> int:
    """The most elements of a tile worth a try; more only where no Config can have fewer."""
    function = structure.function
    blocks = {block.name: block.fixed or 1 for block in function.blocks}
    hints = {size.name: size.hint for size in function.sizes}
    sizes = TileSizes({**blocks, **hints}, {})
    least = (sizes.numel(value.tile.shape) for value in structure.tile_values)
    return max([MAX_TILE_ELEMENTS, *least])


def distinct_tiles(structure: FunctionOutline) -> tuple[Value, ...]:
    """One value for each shape that occurs, the largest ranks first."""
    by_shape: dict[Shape, Value] = {}
    for value in structure.tile_values:
        known = by_shape.get(value.tile.shape)
        if known is None or (value.name and not known.name):
            by_shape[value.tile.shape] = value
    return tuple(sorted(by_shape.values(), key=lambda value: -value.tile.rank))
