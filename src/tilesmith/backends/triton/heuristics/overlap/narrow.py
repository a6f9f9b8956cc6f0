"""Products of fp8: the operands of the next tile arrive while this one is stored.

Their matrix instructions take half as long as those of halves, so the end of a tile takes twice the
share. In tiles of 128x256, ms on an H200 in turns, by pointers / by copies / by copies and programs
that walk several tiles: 4096x4096x4096 0.1041, 0.1024, 0.0966 (cuBLAS 0.0979); 16384x8192x1280
0.256, 0.252, 0.244 (0.244). Tiles of 128x128 were slower in every form, 0.102 at best.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilesmith.schedule.facts.accesses import AccessFact
from tilesmith.schedule.facts.products import MatmulFact

AREA = 128 * 256
"""Of the only tile that was timed so."""


def do_ends_show(fact: MatmulFact, area: int, *, has_more: bool) -> bool:
    """Whether operands are wider, or programs have several such tiles."""
    return fact.itemsize > 1 or (has_more and area >= AREA)


def are_fp8_copied_well(fact: MatmulFact, moved: Sequence[AccessFact]) -> bool:
    """Whether operands lie along the contraction, as the units want them, and results are wider."""
    operands = [item for item in moved if item.kind == "load"]
    are_narrow = all(item.dtype.is_float and item.dtype.itemsize == 1 for item in operands)
    are_along = all(item.contiguous_dim == fact.k.dim for item in operands)
    are_wider = all(item.dtype.itemsize == 2 for item in moved if item.kind != "load")
    return are_narrow and are_along and are_wider and all(item.fits_descriptor for item in moved)
