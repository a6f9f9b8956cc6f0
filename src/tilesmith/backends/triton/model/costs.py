"""How long a multiprocessor multiplies tiles, and the bytes that the programs of a grid move.

Matrix units are fed from shared memory (Hopper on) or from registers filled from there; either way
shared memory gives 128 bytes for each clock, which narrow tiles need more often. Programs that run
at the same time find each other's tiles in the cache; which those are depends on their numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, prod
from typing import Any

from tilesmith.backends.triton.model.launch import Launch
from tilesmith.backends.triton.model.resources import warp_grid
from tilesmith.backends.triton.model.shared_memory import OperandPipeline
from tilesmith.ir.ops.control_flow import Grid
from tilesmith.schedule.facts.work import rate_class
from tilesmith.schedule.model.estimates import Device
from tilesmith.schedule.model.program_work import Access, GridWork, Product, WorkModel, access_bytes
from tilesmith.schedule.space.sizes import TileSizes
from tilesmith.schedule.space.slots import Entries
from tilesmith.targets import Target

SHARED_BYTES_PER_CLOCK = 128.0
ASYNCHRONOUS_SHARE = 0.95
"""Of the sustained rate: the best tiles of Triton products on an H200."""
OLDER_SHARE_HOPPER = 0.62
"""Of the rate of Hopper's own instructions, for those that read registers."""
OLDER_SHARE_BLACKWELL = 0.3
TURNED_SHARE = 0.3
"""Where an operand must be turned around first (measured for tf32 on an H200)."""
SPREAD_SHARE = 0.25
"""Where warps share the rows of a computed operand, which then goes through shared memory."""
EXACT_SHARE = 0.85
"""Of the fp32 units, for products without matrix units: operands come from shared memory too."""
WARPS_TO_MULTIPLY, FEWER_WARPS = 16, 0.23
"""Such products need many warps; with a quarter of them an H200 had 0.73 of the speed."""
WARPS_TO_FEED = 4
"""One for each of the four parts of a multiprocessor."""


@dataclass(frozen=True)
class ProductModel:
    """Times of products on one target."""

    target: Target
    device: Device
    pipeline: OperandPipeline

    def time_ns(
        self, product: Product, sizes: TileSizes, launch: Launch, resident_warps: int
    ) -> float:
        """One product of one program, all units of a multiprocessor given to it."""
        lhs, rhs = product.dot.lhs.tile, product.dot.rhs.tile
        rows, columns = map(sizes.size, product.dot.result.tile.shape[-2:])
        depth = sizes.size(lhs.shape[-1])
        batch = sizes.size(lhs.shape[0]) if lhs.rank == 3 else 1
        kind = rate_class(lhs.dtype, rhs.dtype, product.dot.precision)
        rate = self.device.matrix_rate(kind) / self.device.num_sms
        flops = 2.0 * batch * rows * columns * depth
        size = max(lhs.dtype.itemsize, rhs.dtype.itemsize)
        if self.pipeline.is_asynchronous(product, sizes, launch):
            moved = self._asynchronous_bytes(rows, columns, launch.num_warps) * depth * size
            share = ASYNCHRONOUS_SHARE * (TURNED_SHARE if self._must_turn(product, size) else 1.0)
            if product.lhs.load is None and launch.num_warps > max(4, rows // 16):
                share *= SPREAD_SHARE
        else:
            m, n = warp_grid(rows, columns, launch.num_warps)
            moved = (rows * n + columns * m) * depth * size
            share = self._older_share(product, resident_warps)
        reading = batch * moved / (SHARED_BYTES_PER_CLOCK * self.device.clock_ghz)
        return max(flops / (rate * share), reading)

    def _older_share(self, product: Product, resident_warps: int) -> float:
        """Of the rate, for products that read registers."""
        if product.is_exact:
            return EXACT_SHARE * min(1.0, resident_warps / WARPS_TO_MULTIPLY) ** FEWER_WARPS
        share = ASYNCHRONOUS_SHARE
        if 90 <= self.target.capability < 120:
            is_hopper = self.target.capability < 100
            share = OLDER_SHARE_HOPPER if is_hopper else OLDER_SHARE_BLACKWELL
        return share * min(1.0, resident_warps / WARPS_TO_FEED)

    def _must_turn(self, product: Product, itemsize: int) -> bool:
        """Only 16-bit operands may lie along their free axis."""
        if itemsize == 2 or self.target.capability >= 100:
            return False
        contracted = product.dot.lhs.tile.shape[-1]
        return any(
            operand.along is not None and operand.along != contracted
            for operand in (product.lhs, product.rhs)
        )

    @staticmethod
    def _asynchronous_bytes(rows: int, columns: int, num_warps: int) -> float:
        """Elements read for each step of K: every instruction reads 64 rows and its columns."""
        groups = max(1, num_warps // 4)
        along_rows = max(1, min(groups, rows // 64))
        width = min(256, max(8, columns * along_rows // groups))
        return rows / 64 * (columns / width) * (64 + width)


SECTOR_BYTES = 32
"""The least that is fetched."""
CACHED_SHARE = 0.7
"""Of the shared cache, for tensors that are read again."""


@dataclass(frozen=True)
class Numbering:
    """How the programs of a grid follow one another."""

    order: tuple[int, ...]
    """Axes, the fastest first."""
    grouping: int = 1
    is_scattered: bool = False
    """Whether programs that run at the same time are far from each other."""

    @staticmethod
    def of(entries: Entries, values: Mapping[str, Any], grid: Grid) -> Numbering:
        """As a Config says."""
        pid_type = values.get("pid_type", "flat")
        order = _entry(entries.ordered, values.get("loop_orders"), grid)
        grouping = _entry(entries.grouped, values.get("l2_groupings"), grid)
        return Numbering(
            tuple(order or range(len(grid.blocks))),
            1 if pid_type == "xyz" else grouping or 1,
            pid_type == "persistent_blocked",
        )

    def distinct(self, counts: Sequence[int], num_programs: int, axes: frozenset[int]) -> int:
        """Different positions along some axes among programs that follow one another."""
        used = prod(counts[axis] for axis in axes)
        if self.is_scattered:
            return min(used, num_programs)
        widths: dict[int, int] = {}
        left = num_programs
        ordered = list(self.order)
        if self.grouping > 1 and len(ordered) > 1:
            fast, slow = ordered[:2]
            group = min(self.grouping, counts[fast])
            widths[slow] = min(counts[slow], ceil(left / group))
            widths[fast] = min(counts[fast], max(group, ceil(left / counts[slow])))
            left = ceil(left / (counts[fast] * counts[slow]))
            ordered = ordered[2:]
        for axis in ordered:
            widths[axis] = min(counts[axis], left)
            left = ceil(left / counts[axis])
        return min(used, num_programs, prod(widths[axis] for axis in axes))


def _entry(owners: Sequence[object], items: Sequence[Any] | None, grid: Grid) -> Any:
    return next((item for owner, item in zip(owners, items or ()) if owner is grid), None)


@dataclass(frozen=True)
class Traffic:
    """Bytes over all programs of a grid."""

    cache: float = 0.0
    """Asked of the shared cache, whole sectors."""
    memory: float = 0.0


def sector_waste(model: WorkModel, access: Access, sizes: TileSizes) -> float:
    """Bytes fetched for each byte used: short runs of memory take whole sectors."""
    fact = access.fact
    if fact.is_scalar:
        return 1.0
    along = fact.contiguous_dim
    run = 1 if along is None else model.used_elements((along,), sizes)
    return max(1.0, SECTOR_BYTES / (run * fact.dtype.itemsize))


def grid_traffic(
    model: WorkModel,
    work: GridWork,
    sizes: TileSizes,
    numbering: Numbering,
    running: int,
    cache_bytes: float,
) -> Traffic:
    """The traffic when that many programs run at the same time."""
    counts = model.programs(work, sizes)
    total = prod(counts)
    running = max(1, min(running, total))
    cached = CACHED_SHARE * cache_bytes
    footprint = sum(access.fact.distinct_bytes or 0.0 for access in work.accesses)
    cache, memory = 0.0, 0.0
    stored = {access.fact.tensor for access in work.accesses if not access.is_load}
    for access in work.accesses:
        once = access_bytes(model, access, sizes) * model.trips(access.loops, sizes)
        asked = once * total
        fetched = asked * sector_waste(model, access, sizes)
        distinct = access.fact.distinct_bytes or fetched
        cache += fetched
        if access.fact.tensor in stored and model.share(access.loops, sizes) < 1.0:
            # The last of those that wrote it comes right after them.
            continue
        if footprint <= cached or not access.is_load:
            memory += min(fetched, distinct)
            continue
        own = once / (model.passes(access.fact.shape, sizes) or 1)
        together = numbering.distinct(counts, running, access.grid_axes) * own
        memory += max(min(distinct, fetched), min(fetched, together * total / running))
    return Traffic(cache, memory)
