"""Schedules of reductions across memory: what is reduced are rows, neighbours are columns.

Sums over sequences of packed rows and over the first axis of a matrix are such. The tile is as wide
along memory as whole cache lines need, and has as many rows as keep loads in flight.
"""

from __future__ import annotations

from tilesmith.backends.triton.heuristics.seed import GpuSeed
from tilesmith.schedule.facts.accesses import AccessFact
from tilesmith.schedule.facts.collect import ReductionFact
from tilesmith.schedule.rules import TargetedKernel
from tilesmith.schedule.schedule import next_power_of_2
from tilesmith.schedule.space.sizes import power_of_2_floor

TILE_ELEMENTS = 8192
WIDTH, LEAST_WIDTH = 128, 32
PROGRAMS_PER_SM = 8


def walked_columns_seeds(kernel: TargetedKernel) -> list[GpuSeed]:
    """A seed where all tiles that loops walk are of that kind; else nothing."""
    walked = [fact for fact in kernel.facts.accesses if _walked_blocks(kernel, fact)]
    names = [_column_block(kernel, fact) for fact in walked]
    blocks = {name: _width(kernel, name) for name in names if name is not None}
    if not walked or None in names:
        return []
    for fact in walked:
        left = TILE_ELEMENTS // blocks[fact.contiguous_block or ""]
        for name in _walked_blocks(kernel, fact):
            blocks.setdefault(name, max(1, min(kernel.whole(name), left)))
            left //= blocks[name]
    return [GpuSeed(blocks, 8)]


def whole_columns_seeds(kernel: TargetedKernel, fact: ReductionFact) -> list[GpuSeed]:
    """A seed for columns of a tensor's whole axis, where loads run across it; else nothing."""
    dim = fact.axis.dim
    loads = [a for a in kernel.facts.accesses if a.kind == "load" and dim in a.shape]
    names = {_column_block(kernel, access) for access in loads}
    name = next(iter(names)) if len(names) == 1 else None
    if name is None:
        return []
    width, length = _width(kernel, name), next_power_of_2(fact.axis.extent_or(1024))
    programs = kernel.programs((name,)) * -(-kernel.extent(name) // width)
    # Programs that are alone on their multiprocessor have to keep more in flight.
    elements, warps = (16384, 8) if programs > 2 * kernel.target.num_sms else (32768, 16)
    rows = elements // width
    is_chunked = fact.kind == "rollable" and length > rows
    blocks = {name: width, **_other_axis(kernel, name, programs, rows // min(rows, length))}
    warps = warps if width * length >= TILE_ELEMENTS else 4
    return [GpuSeed(blocks, warps, chunks={dim: rows} if is_chunked else {})]


def _column_block(kernel: TargetedKernel, fact: AccessFact) -> str | None:
    """The tunable block along memory."""
    name = fact.contiguous_block
    return name if name in kernel.entries.blocks else None


def _walked_blocks(kernel: TargetedKernel, fact: AccessFact) -> list[str]:
    """Blocks of loops in an accessed tile of several axes, besides the one along memory."""
    if sum(not dim.is_one for dim in fact.shape) < 2:
        return []
    symbols = {symbol for dim in fact.shape for symbol in dim.symbols}
    own = fact.contiguous_block
    return [name for name in kernel.loop_blocks if name in symbols and name != own]


def _width(kernel: TargetedKernel, name: str) -> int:
    """Narrower where wide tiles would leave multiprocessors without a program."""
    width = WIDTH
    if name in kernel.outline.grid_blocks:
        share = kernel.extent(name) * kernel.programs((name,)) / kernel.target.num_sms
        width = max(LEAST_WIDTH, min(width, power_of_2_floor(share)))
    return min(kernel.whole(name), width)


def _other_axis(kernel: TargetedKernel, name: str, programs: int, left: int) -> dict[str, int]:
    """What short columns leave of a tile goes to another axis of the grid."""
    tuned = kernel.entries.blocks
    others = [b for b in kernel.outline.grid_blocks if b != name and b in tuned]
    if not others:
        return {}
    share = power_of_2_floor(programs / (PROGRAMS_PER_SM * kernel.target.num_sms))
    return {others[-1]: max(1, min(left, share))}
