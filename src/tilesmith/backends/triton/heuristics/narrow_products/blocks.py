"""From sizes of a tile's sides to sizes of blocks: an axis may have several elements for each."""

from __future__ import annotations

from math import prod

from tilesmith.ir.types import Dim
from tilesmith.schedule.facts.extents import Axis


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
