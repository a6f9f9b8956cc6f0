"""Products whose tiles have ends that show: fp8, and results of words.

fp8: matrix instructions take half as long as those of halves, so the end of a tile takes twice the
share; the operands of the next tile arrive meanwhile. In tiles of 128x256, ms on an H200 in turns,
by pointers / by copies / by copies and programs that walk several tiles: 4096x4096x4096 0.1041,
0.1024, 0.0966 (cuBLAS 0.0979); 16384x8192x1280 0.256, 0.252, 0.244 (0.244). Tiles of 128x128 were
slower in every form, also where they fill waves: 12288x4096x6144 0.582, so 0.418 (0.419).

Words: a program that walks tiles in one loop stores one in four parts, for which the loop waits.
With roles a group writes a part while the copy engine reads the one before, and goes on.
One loop over roles, in two runs: 2048x4096x128256 1.04 to 1.10 and 1.00, 1024x4096x32064 1.02;
products whose rows another launch reduces, with that, 1.00 to 1.05 (six, 131072x4096x2048 1.03).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tilesmith.backends.triton.heuristics import tile_sides as sides
from tilesmith.schedule.facts.accesses import AccessFact
from tilesmith.schedule.facts.products import MatmulFact
from tilesmith.schedule.rules import TargetedKernel

SIDES = (128, 256)
"""Of the only tile that was timed so."""
LEAST_STEPS, MOST_STEPS = 1024, 8192
"""Of sums that are stored as words; 4096 were timed."""
TILES_PER_SM = 4
"""At least, so that most tiles have a next one."""


def do_ends_show(kernel: TargetedKernel, fact: MatmulFact, area: int, tiles: int) -> bool:
    """Whether operands are wider, or programs have several such tiles."""
    return fact.itemsize > 1 or (tiles > kernel.target.num_sms and area >= prod(SIDES))


def copied_limits(kernel: TargetedKernel, fact: MatmulFact, *, is_busy: bool) -> dict[str, int]:
    """How large tiles are of which operands are copied: fp8 has the one that was timed."""
    if fact.itemsize > 1:
        return {"max_n": 128} if is_busy else {}
    tiles = prod(axis.extent_or(0) // side for axis, side in zip((fact.m, fact.n), SIDES))
    return {"least_side": max(SIDES)} if tiles > kernel.target.num_sms else {}


def are_copied_well(fact: MatmulFact, moved: Sequence[AccessFact]) -> bool:
    """Whether copies of the operands of a product are faster than loads by pointers."""
    return sides.are_copied_well(moved) or _are_fp8_copied_well(fact, moved)


def _are_fp8_copied_well(fact: MatmulFact, moved: Sequence[AccessFact]) -> bool:
    """Whether operands lie along the contraction, as the units want them, and results are wider."""
    operands = [item for item in moved if item.kind == "load"]
    are_narrow = all(item.dtype.is_float and item.dtype.itemsize == 1 for item in operands)
    are_along = all(item.contiguous_dim == fact.k.dim for item in operands)
    are_wider = all(item.dtype.itemsize == 2 for item in moved if item.kind != "load")
    return are_narrow and are_along and are_wider and all(item.fits_descriptor for item in moved)


def are_words_stored(kernel: TargetedKernel) -> bool:
    """Whether all that a kernel stores are words."""
    stores = [item for item in kernel.facts.accesses if item.kind != "load"]
    return all(item.kind == "store" and item.dtype.itemsize == 4 for item in stores)


def do_stores_show(kernel: TargetedKernel, fact: MatmulFact) -> bool:
    """Whether that takes long enough, of programs that have several tiles."""
    sizes = [axis.extent_or(0) for axis in fact.axes]
    tiles = prod(size // side for size, side in zip(sizes, SIDES))
    are_many = tiles >= TILES_PER_SM * kernel.target.num_sms
    is_known = fact.itemsize == 2 and LEAST_STEPS <= sizes[2] <= MOST_STEPS
    return are_many and is_known and are_words_stored(kernel)
