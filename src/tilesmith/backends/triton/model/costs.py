"""GPUs: limits and rates by target, and what products and accesses cost on them.

Limits and peak rates are the vendors' figures; where a device was measured, rates are what the best
kernels reach on it. Rates of others scale the vendor's figure by the same share.

Matrix units are fed from shared memory (Hopper on) or from registers filled from there; either way
shared memory gives 128 bytes for each clock, which narrow tiles need more often. Programs that run
at the same time find each other's tiles in the cache; which those are depends on their numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, prod
from typing import Any

from tilesmith.backends.triton.model.launch import Launch, OperandPipeline
from tilesmith.backends.triton.model.resources import warp_grid
from tilesmith.ir.ops.control_flow import Grid
from tilesmith.schedule.facts.work import rate_class
from tilesmith.schedule.model.estimates import Device, matrix_rates
from tilesmith.schedule.model.program_work import Access, GridWork, Product, WorkModel, access_bytes
from tilesmith.schedule.space.sizes import TileSizes
from tilesmith.schedule.space.slots import Entries, entry_of
from tilesmith.targets import Target

KIB, MIB = 1 << 10, 1 << 20

# NVIDIA: CUDA programming guide, table of technical specifications per compute capability;
# architecture white papers for rates (dense). 16 special functions per clock and multiprocessor.
# Sustained shares: 0.8 of the matrix peak (the best published kernels), 0.88 of the memory's.
_A100 = Device(
    "A100", 108, 32, 1.41, 163 * KIB, 164 * KIB, 65536, 64, 32,
    dram_rate=1790.0, l2_rate=5100.0, l2_bytes=40 * MIB,
    matrix_rates=matrix_rates(16, 16, 125, 250, 250, 500),
    vector_rate=108 * 64 * 1.41, special_rate=108 * 16 * 1.41, launch_ns=3000.0,
)  # fmt: skip
# RTX A6000.
_SM_86 = Device(
    "A6000", 84, 32, 1.7, 99 * KIB, 100 * KIB, 65536, 48, 16,
    dram_rate=680.0, l2_rate=2500.0, l2_bytes=6 * MIB,
    matrix_rates=matrix_rates(0.5, 30, 62, 124, 124, 248),
    vector_rate=84 * 128 * 1.7, special_rate=84 * 16 * 1.7, launch_ns=3000.0,
)  # fmt: skip
# L40S / RTX 6000 Ada.
_SM_89 = Device(
    "L40S", 142, 32, 2.2, 99 * KIB, 100 * KIB, 65536, 48, 24,
    dram_rate=800.0, l2_rate=5000.0, l2_bytes=96 * MIB,
    matrix_rates=matrix_rates(1.1, 70, 145, 290, 580, 580),
    vector_rate=142 * 128 * 2.2, special_rate=142 * 16 * 2.2, launch_ns=3000.0,
)  # fmt: skip
# H200, measured: copy 4.23 TB/s; cuBLAS bf16 746 TFLOP/s at 4096^3 (peak 989); tiles of Triton
# products of 81 GB/s and 5.6 TFLOP/s for each multiprocessor (heuristics/matmul.py).
_H200 = Device(
    "H200", 132, 32, 1.755, 227 * KIB, 228 * KIB, 65536, 64, 32,
    dram_rate=4230.0, l2_rate=10800.0, l2_bytes=50 * MIB,
    matrix_rates=matrix_rates(54, 54, 395, 770, 1540, 1540),
    vector_rate=132 * 128 * 1.755, special_rate=132 * 16 * 1.755, launch_ns=2500.0,
)  # fmt: skip
# H100 SXM: the same chip with 3.35 TB/s instead of 4.8.
_H100 = replace(_H200, name="H100", dram_rate=2950.0)
_B200 = Device(
    "B200", 148, 32, 1.8, 227 * KIB, 228 * KIB, 65536, 64, 32,
    dram_rate=7000.0, l2_rate=14000.0, l2_bytes=126 * MIB,
    matrix_rates=matrix_rates(30, 60, 900, 1800, 3600, 3600),
    vector_rate=148 * 128 * 1.8, special_rate=148 * 16 * 1.8, launch_ns=2500.0,
)  # fmt: skip
# RTX PRO 6000 Blackwell.
_SM_120 = Device(
    "RTX PRO 6000", 188, 32, 2.3, 99 * KIB, 100 * KIB, 65536, 48, 24,
    dram_rate=1580.0, l2_rate=8000.0, l2_bytes=128 * MIB,
    matrix_rates=matrix_rates(1.5, 95, 200, 400, 800, 800),
    vector_rate=188 * 128 * 2.3, special_rate=188 * 16 * 2.3, launch_ns=2500.0,
)  # fmt: skip
# AMD: CDNA 3 and CDNA 4 white papers. A compute unit holds 4 x 512 registers of 64 lanes and 32
# waves. Public bf16 products in Triton reach half of the peak (hipBLASLt 0.6 to 0.7). "l2" is the
# cache that all chiplets share; MI355X has no tf32, its products go through fp32 units.
_MI300X = Device(
    "MI300X", 304, 64, 1.9, 64 * KIB, 64 * KIB, 131072, 32, 16,
    dram_rate=4300.0, l2_rate=12000.0, l2_bytes=256 * MIB,
    matrix_rates=matrix_rates(80, 80, 330, 750, 1500, 1500),
    vector_rate=304 * 128 * 1.9, special_rate=304 * 16 * 1.9, launch_ns=5000.0,
    dram_latency_ns=900.0, l2_latency_ns=450.0,
)  # fmt: skip
_MI350X = Device(
    "MI350X", 256, 64, 2.2, 160 * KIB, 160 * KIB, 131072, 32, 16,
    dram_rate=6500.0, l2_rate=14000.0, l2_bytes=256 * MIB,
    matrix_rates=matrix_rates(50, 100, 100, 1500, 3000, 3000),
    vector_rate=256 * 128 * 2.2, special_rate=256 * 16 * 2.2, launch_ns=5000.0,
    dram_latency_ns=900.0, l2_latency_ns=450.0,
)  # fmt: skip

_CUDA = {80: _A100, 86: _SM_86, 89: _SM_89, 90: _H200, 100: _B200, 120: _SM_120}
_HIP = {"gfx942": _MI300X, "gfx950": _MI350X}
_BY_NAME = {"H100": _H100, "H800": _H100, "GH200": _H100}
"""Devices that share their architecture's name with a faster one, by what the driver calls them."""


def device_of(target: Target) -> Device:
    """The figures of a GPU; unknown ones take those of the next older architecture."""
    if target.kind == "hip":
        return _HIP.get(target.arch, _MI300X).with_sms(target.num_sms)
    known = max((c for c in _CUDA if c <= target.capability), default=80)
    by_name = (device for name, device in _BY_NAME.items() if name in target.model)
    device = next(by_name, _CUDA[known]) if known == 90 else _CUDA[known]
    return device.with_sms(target.num_sms)


SHARED_BYTES_PER_CLOCK = 128.0
ASYNCHRONOUS_SHARE = 0.95
"""Of the sustained rate: the best tiles of Triton products on an H200."""
OLDER_SHARE_HOPPER = 0.62
"""Of the rate of Hopper's own instructions, for those that read registers."""
OLDER_SHARE_BLACKWELL = 0.3
TURNED_SHARE, REGISTER_SHARE = 0.3, 0.8
"""Where an operand must be turned around first: in shared memory (where copies of single elements
have put it in order, too), and on its way from there to registers (tf32 on an H200)."""
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

    def time_ns(self, product: Product, launch: Launch, resident_warps: int) -> float:
        """One product of one program, all units of a multiprocessor given to it."""
        sizes, lhs, rhs = launch.sizes, product.dot.lhs.tile, product.dot.rhs.tile
        rows, columns = map(sizes.size, product.dot.result.tile.shape[-2:])
        depth = sizes.size(lhs.shape[-1])
        batch = sizes.size(lhs.shape[0]) if lhs.rank == 3 else 1
        kind = rate_class(lhs.dtype, rhs.dtype, product.dot.precision)
        rate = self.device.matrix_rate(kind) / self.device.num_sms
        flops = 2.0 * batch * rows * columns * depth
        size = max(lhs.dtype.itemsize, rhs.dtype.itemsize)
        if self.pipeline.is_asynchronous(product, launch):
            moved = self._asynchronous_bytes(rows, columns, launch.num_warps) * depth * size
            share = ASYNCHRONOUS_SHARE * self._turning_share(product, size, launch.descriptors)
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

    def _turning_share(self, product: Product, itemsize: int, descriptors: frozenset[int]) -> float:
        """Only 16-bit operands may lie along their free axis; a right one of tf32 is turned."""
        lhs, rhs, contracted = product.lhs.along, product.rhs, product.dot.lhs.tile.shape[-1]
        is_ordered = {lhs, rhs.along} <= {None, contracted}
        if itemsize == 2 or self.target.capability >= 100 or is_ordered:
            return 1.0
        is_right = lhs == contracted and product.dot.precision == "tf32"
        is_copied = rhs.load is not None and rhs.load.slot in descriptors
        return REGISTER_SHARE if is_right and is_copied else TURNED_SHARE

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
        order = entry_of(values, "loop_orders", entries.ordered, grid)
        grouping = entry_of(values, "l2_groupings", entries.grouped, grid)
        return Numbering(
            tuple(order or range(len(grid.blocks))),
            1 if pid_type == "xyz" else grouping,
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


def sector_waste(model: WorkModel, access: Access, sizes: TileSizes) -> float:
    """Bytes fetched for each byte used: short runs of memory take whole sectors."""
    fact = access.fact
    if fact.is_scalar:
        return 1.0
    along = fact.contiguous_dim
    run = 1 if along is None else model.used_elements((along,), sizes)
    return max(1.0, SECTOR_BYTES / (run * fact.dtype.itemsize))


def memory_bytes(
    model: WorkModel,
    work: GridWork,
    sizes: TileSizes,
    numbering: Numbering,
    running: int,
    cache_bytes: float,
) -> float:
    """Bytes over all programs of a grid that miss the cache, when that many run at a time."""
    counts = model.programs(work, sizes)
    programs = prod(counts)
    running = max(1, min(running, programs))
    footprint = sum(access.fact.distinct_bytes or 0.0 for access in work.accesses)
    is_cached = footprint <= CACHED_SHARE * cache_bytes
    total = 0.0
    stored = {access.fact.tensor for access in work.accesses if not access.is_load}
    for access in work.accesses:
        if access.fact.tensor in stored and model.share(access.loops, sizes) < 1.0:
            # The last of those that wrote it comes right after them.
            continue
        once = access_bytes(model, access, sizes) * model.trips(access.loops, sizes)
        # Whole sectors.
        fetched = once * programs * sector_waste(model, access, sizes)
        least = min(fetched, access.fact.distinct_bytes or fetched)
        if is_cached or not access.is_load:
            total += least
            continue
        own = once / (model.passes(access.fact.shape, sizes) or 1)
        together = numbering.distinct(counts, running, access.grid_axes) * own
        total += max(least, min(fetched, together * programs / running))
    return total
