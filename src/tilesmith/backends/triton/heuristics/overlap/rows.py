"""Rows that are loaded once: how many warps share one, and how many columns a program sums.

Warps of a row wait for each other at each reduction, while nothing else of their program runs. A
row that is only read, and reduced more than once, is best with 128 bytes in a thread. In turns on
an H200, with 4, 2 and 1 warps over 8: cross entropy of 16384x4096 in bf16 1.13, 1.18, 0.95 (8 warps
0.0620 ms); log-sum-exp of 131072x2048 in fp32, with the product before it, 1.02, 1.03 (2.80 ms).

Columns that a loop of the program walks: each tile of them begins a loop over the rows anew, whose
first loads nothing hides. So all are summed at a time, in steps of few rows. Means of 512 sequences
of up to 512 rows, 1024 columns, by columns, rows and warps: 128x64, 2 0.1862; 128x64, 4 0.1633;
256x32, 4 0.1559; 512x16, 4 0.1395; 1024x16, 4 0.1278; 1024x16, 8 0.1371; of 384 of up to 300 rows,
512 columns: 128x64, 2 0.0589; 512x32, 4 0.0539; 512x16, 4 0.0418.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilesmith.backends.triton.heuristics.walkers import has_many, waits_once
from tilesmith.ir.types import Dim, next_power_of_2
from tilesmith.schedule.facts.products import ReductionFact
from tilesmith.schedule.rules import TargetedKernel

BYTES_OF_A_WARP = 4096
LEAST, MOST = 512, 1024
"""Columns of a tile; 256 were slower (0.0189, by 128 0.0184), more than 1024 were not timed."""
ROWS, WARPS = 16, 4


def is_stored(kernel: TargetedKernel, fact: ReductionFact) -> bool:
    """Whether something as long as the row is stored."""
    stores = [access for access in kernel.facts.accesses if access.kind == "store"]
    return any(fact.axis.dim in access.shape for access in stores)


def warps_of_read_rows(
    kernel: TargetedKernel, along: Dim, rows: int, length: int, warps: int
) -> int:
    """No more than wait for each other at several reductions of many rows along an axis."""
    loads = [fact for fact in kernel.facts.accesses if fact.kind == "load" and along in fact.shape]
    widest = max((fact.dtype.itemsize for fact in loads), default=1)
    few = next_power_of_2(-(-rows * length * widest // BYTES_OF_A_WARP))
    return min(warps, few) if has_many(kernel, rows) and not waits_once(kernel) else warps


def all_columns(
    kernel: TargetedKernel, blocks: Mapping[str, int], columns: Sequence[str]
) -> tuple[dict[str, int], int] | None:
    """Tiles and warps of programs that have their columns to themselves; None for others."""
    (name, *others) = columns
    is_shared = name in kernel.outline.grid_blocks
    has_many = kernel.programs(tuple(columns)) > 2 * kernel.target.num_sms
    width = min(MOST, kernel.whole(name))
    if others or is_shared or not has_many or width < LEAST:
        return None
    rows = {key: min(kernel.whole(key), ROWS) for key in blocks if key != name}
    return {**rows, name: width}, WARPS
