"""Programs that walk columns or rows: their tiles where they are few, and how many warps they have.

Few programs wait for loads. 112 sequences of up to 320 rows, 256 columns, eight warps and sums by
lanes, ms on an H200: sums with 128x64 (columns by rows) 0.0163, 64x64 0.0121, 32x128 0.0113, since
there are more programs; means, which walk columns by a loop of their own, with 128x64 0.0174,
256x64 0.0157, but of 512 columns 0.0327 and 0.0337: all at a time or none. Warps go by how often
threads wait for each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilesmith.ir.ops.reduction import Reduce
from tilesmith.schedule.rules import TargetedKernel

NARROW, WIDE = 32, 256
"""Columns of a tile, where programs share them and where they do not."""
ELEMENTS = 4096


def few_walkers(
    kernel: TargetedKernel, blocks: Mapping[str, int], columns: Sequence[str]
) -> dict[str, int]:
    """Sizes of blocks of kernels that compute no functions of elements.

    Where programs have nothing but columns, as many as are wanted have been counted on already.
    """
    if kernel.programs(tuple(columns)) <= 1:
        return dict(blocks)
    shared = [name for name in columns if name in kernel.outline.grid_blocks]
    if not shared:
        whole = {name: kernel.whole(name) for name in columns if kernel.whole(name) <= WIDE}
        return {**blocks, **whole}
    wide = [name for name in shared if blocks[name] > NARROW]
    walked = [name for name in blocks if name not in columns] if wide else []
    rows = {name: min(kernel.whole(name), ELEMENTS // NARROW) for name in walked}
    return {**blocks, **rows, **dict.fromkeys(wide, NARROW)}


MANY_PROGRAMS = 8
"""For each multiprocessor: with fewer, threads of a program have to hide how long loads take."""


def has_many(kernel: TargetedKernel, rows: int) -> bool:
    """Whether there are enough programs of so many rows."""
    return kernel.programs(()) >= MANY_PROGRAMS * kernel.target.num_sms * rows


def waits_once(kernel: TargetedKernel) -> bool:
    """Whether a row has one reduction: more warps then, from 4097 columns on.

    RMS norm with 4 and 8 warps, ms on an H200: 8192x8192 0.0721, 0.0710; 3072x6144 0.0255, 0.0245;
    layer norm of 6144x8192, which has two, 0.0581, 0.0587.
    """
    return len(list(kernel.outline.ops(Reduce))) == 1


def warps_of_steps(kernel: TargetedKernel) -> int:
    """Of loops that walk rows: sums are kept by lanes, and nobody waits in a turn.

    4 and 8 warps: jsd of 8192x65536 1.614, 1.592; kl_div of 4096x65536 0.486, 0.481, of 4096x16384
    0.1372, 0.1350.
    """
    return 8 if all(op.kind == "sum" for op in kernel.outline.ops(Reduce)) else 4
