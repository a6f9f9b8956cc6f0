"""How many elements an axis of a device value holds, as far as that is known when tracing.

A constant axis holds its size. Tiles of a fixed block size over a known range hold that block, and
what is left in the last of them; a block that covers the range holds all of it.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilesmith.diagnostics import errors
from tilesmith.frontend.sessions import current_tracer
from tilesmith.frontend.tracer import locate
from tilesmith.frontend.values import TileValue


@dataclass(frozen=True)
class LaneCounts:
    """The elements in the emptiest and in the fullest tile."""

    least: int
    most: int


def find_counts(x: TileValue, axis: int, function: str) -> LaneCounts | None:
    """The counts of an axis; None where they are not known."""
    try:
        return known_counts(x, axis, function)
    except errors.BackendUnsupported:
        return None


def known_counts(x: TileValue, axis: int, function: str) -> LaneCounts:
    """The counts of an axis along which a function needs to know them."""
    dim = x.tile.shape[axis]
    if dim.constant is not None:
        return LaneCounts(dim.constant, dim.constant)
    block = next((b for b in current_tracer(function).blocks if b.name == dim.symbol), None)
    if block is None or block.fixed is None:
        raise _not_known(x, axis, function, "tiles of a size that the config chooses")
    if current_tracer(function).find_tile(block.name) is None:
        return LaneCounts(block.fixed, block.fixed)
    if block.extent is None:
        raise _not_known(x, axis, function, f"tiles of {block.fixed} over a range that may vary")
    return LaneCounts(block.extent % block.fixed or block.fixed, min(block.extent, block.fixed))


def known_count(x: TileValue, axis: int, function: str) -> int:
    """The one count of all tiles along an axis."""
    counts = known_counts(x, axis, function)
    if counts.least != counts.most:
        found = f"tiles of {counts.most}, and one of {counts.least}"
        raise _not_known(x, axis, function, found)
    return counts.least


def _not_known(x: TileValue, axis: int, function: str, found: str) -> errors.BaseError:
    return errors.BackendUnsupported(
        operation=f"{function} along the tile axis {x.tile.shape[axis]}",
        backend="triton, cpu or reference",
        expected="an axis whose number of elements is known: all of it, or equal parts",
        found=found,
        fix="load the whole axis with `:`, or in one tile: "
        "hl.tile(n, block_size=helion.next_power_of_2(n))",
        loc=locate(),
    )
