"""The part of a Config that decides about resources, and the operands it keeps in flight."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

from tilesmith.ir.ops.control_flow import Loop
from tilesmith.schedule.config import is_persistent
from tilesmith.schedule.facts.accesses import AccessFact
from tilesmith.schedule.facts.outline import FunctionOutline, LoopAxis
from tilesmith.schedule.model.program_work import Operand, Product, Products
from tilesmith.schedule.rules import TargetedKernel
from tilesmith.schedule.schedule import LoopOptions
from tilesmith.schedule.space.sizes import TileSizes
from tilesmith.schedule.space.slots import constant_step, is_static
from tilesmith.targets import Target

PLAIN_LOOP = LoopOptions()


@dataclass(frozen=True)
class Launch:
    """The part of a Config that resources depend on."""

    sizes: TileSizes
    num_warps: int
    num_stages: int
    loops: Mapping[int, LoopOptions]
    """By slot: stages (0: the kernel's) and unrolling."""
    maxnreg: int | None = None
    descriptors: frozenset[int] = frozenset()
    """Slots of loads and stores that go through descriptors, and so through shared memory."""
    store_parts: int = 1
    """In how many parts tiles are stored through descriptors."""
    program_loop: LoopOptions = PLAIN_LOOP
    turns: Mapping[int, int] = field(default_factory=dict[int, int])
    """By slot, of loops that are written out completely."""
    is_persistent: bool = False
    """Whether each program walks over many tiles."""
    is_fused: bool = False
    """Whether the loop over programs is flattened into the loops inside it."""


def _descriptors(kernel: TargetedKernel, values: Mapping[str, Any]) -> frozenset[int]:
    if not kernel.target.has_tensor_descriptors:
        return frozenset()
    fitting = {f.slot for f in kernel.facts.accesses if f.kind != "atomic" and f.fits_descriptor}
    choices = zip(kernel.entries.accesses, values.get("indexing") or [])
    chosen = {op.slot for op, choice in choices if choice == "tensor_descriptor"}
    return frozenset(fitting & chosen)


def _static_turns(kernel: TargetedKernel, values: Mapping[str, Any]) -> dict[int, int]:
    entries, sizes = kernel.entries, kernel.sizes(values)

    def turns(loop: Loop, axis: LoopAxis) -> int:
        step = sizes.symbols[axis.block] if axis.block else None
        step = step or constant_step(kernel.outline, loop, axis) or 1
        return -(-(axis.extent or 1) // step)

    return {
        loop.slot: prod(turns(loop, axis) for axis in kernel.outline.axes_of(loop))
        for loop in kernel.outline.loops
        if is_static(entries, values, loop)
    }


def launch_of(kernel: TargetedKernel, values: Mapping[str, Any]) -> Launch:
    """The summary of normalised values."""
    flattens = values.get("range_flattens") or [None]
    stages, unrolls = values["range_num_stages"], values["range_unroll_factors"]
    loops = is_persistent(values["pid_type"])
    return Launch(
        sizes=kernel.sizes(values),
        num_warps=values["num_warps"],
        num_stages=values["num_stages"],
        loops={
            entry.loop.slot: LoopOptions(num_stages=stages[i], unroll_factor=unrolls[i])
            for i, entry in enumerate(kernel.entries.ranges)
            if not entry.is_persistent_loop
        },
        turns=_static_turns(kernel, values) if any(values.get("static_ranges") or ()) else {},
        maxnreg=values.get("maxnreg"),
        descriptors=_descriptors(kernel, values),
        store_parts=values.get("epilogue_subtile") or 1,
        program_loop=LoopOptions(num_stages=stages[0], unroll_factor=unrolls[0])
        if loops and stages
        else PLAIN_LOOP,
        is_persistent=loops,
        is_fused=loops and flattens[0] is True,
    )


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

    def is_asynchronous(self, product: Product, launch: Launch) -> bool:
        """Whether the product reads shared memory by itself (Hopper on)."""
        rows = launch.sizes.size(product.dot.result.tile.shape[-2])
        is_new = self._target.capability >= 90 and not product.is_exact
        return is_new and rows >= 64 and launch.num_warps >= 4

    def is_pipelined(self, product: Product, launch: Launch) -> bool:
        """Whether the right operand arrives ahead of its use."""
        return self.buffers(product, product.rhs, launch) > 0

    def buffers(self, product: Product, operand: Operand, launch: Launch) -> int:
        """How many tiles of a pipelined load are in flight; 0 when it is not pipelined."""
        loop = product.loop
        if loop is None or loop.is_ordered or operand.load is None:
            return 0
        if operand.loop is not loop:
            return launch.num_stages if launch.is_fused else 0
        use = launch.loops.get(loop.slot, PLAIN_LOOP)
        stages = use.num_stages or launch.num_stages
        if launch.is_fused:
            # The fused loop takes the options of the outer one first.
            own = (launch.program_loop.num_stages, use.num_stages)
            stages = next((count for count in own if count > 1), launch.num_stages)
        if stages <= 1 or not self._copies_itself(operand, launch):
            return 0
        is_chained = any(p.lhs.load is None for p in self.products if p.loop is loop)
        if self._target.kind == "hip" and stages == CHAINED_STAGES_HIP and is_chained:
            return 1
        ahead = stages if self.is_asynchronous(product, launch) else stages - 1
        return ahead * max(1, use.unroll_factor)

    def _copies_itself(self, operand: Operand, launch: Launch) -> bool:
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
        elements = max(1, min(width, launch.sizes.numel(tile.shape) // threads))
        return elements * tile.dtype.itemsize >= LEAST_COPY_BYTES
