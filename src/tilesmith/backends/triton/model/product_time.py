"""How long one multiprocessor takes for one matrix product of tiles, operands at hand.

Matrix units are fed from shared memory (Hopper on) or from registers filled from there; either way
shared memory gives 128 bytes for each clock, which narrow tiles need more often.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilesmith.backends.triton.model.launch import Launch
from tilesmith.backends.triton.model.resources import warp_grid
from tilesmith.backends.triton.model.shared_memory import OperandPipeline
from tilesmith.schedule.facts.work import rate_class
from tilesmith.schedule.model.device import Device
from tilesmith.schedule.model.program_work import Product
from tilesmith.schedule.space.sizes import TileSizes
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
            share = self._older_share(product) * self._feeding(product, resident_warps)
        reading = batch * moved / (SHARED_BYTES_PER_CLOCK * self.device.clock_ghz)
        return max(flops / (rate * share), reading)

    @staticmethod
    def _feeding(product: Product, resident_warps: int) -> float:
        if product.is_exact:
            return min(1.0, resident_warps / WARPS_TO_MULTIPLY) ** FEWER_WARPS
        return min(1.0, resident_warps / WARPS_TO_FEED)

    def _older_share(self, product: Product) -> float:
        if product.is_exact:
            return EXACT_SHARE
        if self.target.capability >= 100:
            return OLDER_SHARE_BLACKWELL if self.target.capability < 120 else ASYNCHRONOUS_SHARE
        return OLDER_SHARE_HOPPER if self.target.capability >= 90 else ASYNCHRONOUS_SHARE

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
