"""Operands of matrix products on a GPU: how many tiles of them are in flight."""

from __future__ import annotations

from collections.abc import Iterable

from tilesmith.backends.triton.model.launch import Launch, LoopUse
from tilesmith.ir.ops.control_flow import Loop
from tilesmith.schedule.facts.accesses import AccessFact
from tilesmith.schedule.facts.outline import FunctionOutline
from tilesmith.schedule.model.products import Operand, Product, Products
from tilesmith.schedule.space.sizes import TileSizes
from tilesmith.targets import Target

LEAST_COPY_BYTES = 4
"""What one thread must move at once for a copy to run by itself."""
CHAINED_STAGES_HIP = 4
"""With so many stages AMD's compiler overlaps two chained products instead of their loads."""


class OperandPipeline(Products):
    """The products of one function, and what arrives ahead for them under different Configs."""

    def __init__(
        self, outline: FunctionOutline, target: Target, accesses: Iterable[AccessFact]
    ) -> None:
        super().__init__(outline, accesses)
        self._grid_blocks = outline.grid_blocks
        self._target = target

    def is_asynchronous(self, product: Product, sizes: TileSizes, launch: Launch) -> bool:
        """Whether the product reads shared memory by itself (Hopper on)."""
        rows = sizes.size(product.dot.result.tile.shape[-2])
        is_new = self._target.capability >= 90 and not product.is_exact
        return is_new and rows >= 64 and launch.num_warps >= 4

    def is_pipelined(self, product: Product, sizes: TileSizes, launch: Launch) -> bool:
        """Whether the right operand arrives ahead of its use."""
        return self.buffers(product, product.rhs, sizes, launch) > 0

    def buffers(self, product: Product, operand: Operand, sizes: TileSizes, launch: Launch) -> int:
        """How many tiles of a pipelined load are in flight; 0 when it is not pipelined."""
        loop = product.loop
        if loop is None or loop.is_ordered or operand.load is None:
            return 0
        if operand.loop is not loop:
            return launch.num_stages if launch.is_fused else 0
        use = launch.loops.get(loop.slot, LoopUse())
        stages = use.num_stages or launch.num_stages
        if launch.is_fused:
            # The fused loop takes the options of the outer one first.
            own = (launch.program_loop.num_stages, use.num_stages)
            stages = next((count for count in own if count > 1), launch.num_stages)
        if stages <= 1 or not self._copies_itself(operand, sizes, launch):
            return 0
        if self._target.kind == "hip" and stages == CHAINED_STAGES_HIP and self._is_chained(loop):
            return 1
        ahead = stages if self.is_asynchronous(product, sizes, launch) else stages - 1
        return ahead * max(1, use.unroll)

    def _is_chained(self, loop: Loop) -> bool:
        return any(p.lhs.load is None for p in self.products if p.loop is loop)

    def _copies_itself(self, operand: Operand, sizes: TileSizes, launch: Launch) -> bool:
        """Whether threads move enough of a tile at once for a copy that runs by itself."""
        assert operand.load is not None
        if operand.load.slot in launch.descriptors:
            return True
        tile = operand.load.result.tile
        threads = launch.num_warps * self._target.warp_size
        along = () if operand.along is None else operand.along.symbols
        # In a fused loop the compiler loses sight of where tiles of the grid begin.
        is_lost = launch.is_fused and any(name in self._grid_blocks for name in along)
        width = 1 if is_lost else operand.width
        elements = max(1, min(width, sizes.numel(tile.shape) // threads))
        return elements * tile.dtype.itemsize >= LEAST_COPY_BYTES
