"""Sides of a product's tile: sizes of their blocks, shares of a long sum, parts that are stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from tilesmith.backends.triton.heuristics.seed import GpuSeed
from tilesmith.ir.types import Dim, next_power_of_2
from tilesmith.schedule.facts.accesses import AccessFact
from tilesmith.schedule.facts.extents import Axis
from tilesmith.schedule.facts.products import MatmulFact
from tilesmith.schedule.rules import TargetedKernel
from tilesmith.schedule.space.sizes import power_of_2_floor

HALF, WORD = 2, 4
"""Bytes."""


def sized(*sides: tuple[Axis, int]) -> dict[str, int]:
    """Sizes by block, of those axes that have one, or a multiple of one: ``block * 2``."""
    found = [(axis.block or _part(axis.dim), axis, size) for axis, size in sides]
    return {
        block: size if axis.block else max(1, size // prod(_counts(axis.dim)))
        for block, axis, size in found
        if block is not None
    }


def _part(dim: Dim) -> str | None:
    """The symbol that a dimension is a multiple of."""
    is_multiple = len(dim.symbols) == 1 and len(_counts(dim)) + 1 == len(dim.factors)
    return dim.symbols[0] if is_multiple else None


def _counts(dim: Dim) -> list[int]:
    return [factor for factor in dim.factors if isinstance(factor, int)]


def with_splits(kernel: TargetedKernel, fact: MatmulFact, seed: GpuSeed) -> GpuSeed:
    """Where programs also split K (into tuned tiles), as many splits as fill the device."""
    (block,) = sized((fact.k, 1)) or ("",)
    outer = kernel.outline.outer_bounds.get(block)
    if not isinstance(outer, str) or outer not in kernel.entries.blocks:
        return seed
    sides = ((axis.extent_or(4096), axis.block or "") for axis in (fact.m, fact.n))
    counts = [-(-extent // seed.blocks.get(name, 16)) for extent, name in sides]
    splits = max(1, power_of_2_floor(kernel.target.num_sms / max(1, counts[0] * counts[1])))
    length = next_power_of_2(-(-kernel.extent(outer) // splits))
    return replace(seed, blocks={**seed.blocks, outer: length})


def are_copied_well(moved: Sequence[AccessFact]) -> bool:
    """Whether operands have two bytes, and results that or four, all where descriptors reach."""
    allowed = {"load": (HALF,)}
    sizes = [item.dtype.itemsize in allowed.get(item.kind, (HALF, WORD)) for item in moved]
    return all(sizes) and all(item.fits_descriptor for item in moved)


def parts_of_tile(kernel: TargetedKernel, parts: int | None) -> int | None:
    """In how many parts a tile is stored: words take twice the room, and leave in twice as many.

    None for words where tiles are stored whole: they would find no room.
    2048x4096x128256, stored as fp32, ms: pointers 3.93, copied in four parts 3.28, in two 3.29.
    """
    stores = [item for item in kernel.facts.accesses if item.kind == "store"]
    is_wide = any(item.dtype.itemsize > HALF for item in stores)
    return (parts * 2 if parts else None) if is_wide else parts or 0
