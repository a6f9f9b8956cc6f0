"""What a schedule needs of a GPU, in closed form: registers, shared memory, straight code.

Registers are an estimate: a multiprocessor has 65536 of them and a thread at most 255; what is
carried by loops stays in them, and so do tiles of the straight part of a program. Compilers for
GPUs write a tile's elements out one by one, and a loop's body as often as it is unrolled: long
straight code spills, and takes minutes to compile.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from tilesmith.backends.triton.model.launch import Launch, LoopUse
from tilesmith.backends.triton.model.shared_memory import (
    OperandPipeline,
    SharedMemoryModel,
    tile_bytes,
)
from tilesmith.ir.ops.control_flow import Loop
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.memory import Load
from tilesmith.ir.types import Value
from tilesmith.schedule.facts.outline import FunctionOutline, Site
from tilesmith.schedule.model.estimates import CodeLength, Limits, ResourceUse
from tilesmith.schedule.rules import TargetedKernel
from tilesmith.schedule.space.sizes import TileSizes, distinct_tiles

OVERHEAD_REGISTERS = 24


class ResourceModel:
    """Estimates the resources of one function under different Configs."""

    def __init__(self, kernel: TargetedKernel) -> None:
        outline = kernel.outline
        self._target = kernel.target
        self._most_elements = kernel.rules.sizes.most_elements
        self.pipeline = OperandPipeline(outline, kernel.target, kernel.facts.accesses)
        self._shared = SharedMemoryModel(outline, kernel.target, self.pipeline)
        exact = [product.dot for product in self.pipeline.products if product.is_exact]
        self._code = StraightCode(outline, exact)
        self._tiles = distinct_tiles(outline)
        # Tiles carried by each loop and by the loops around it.
        nests = [(*site.loops, site.op) for site in outline.sites if isinstance(site.op, Loop)]
        self._nests = [
            [v for op in nest if isinstance(op, Loop) for v in op.carried if v.tile.rank]
            for nest in nests
        ]
        carried = {value.type for nest in self._nests for value in nest}
        by_type = {v.type: v for v in outline.tile_values if v not in self.pipeline.operands}
        self._resident = tuple(by_type.values())
        # An updated accumulator takes the place of the old one; it is no second copy.
        self._passing = tuple(v for v in self._resident if v.type not in carried)

    def estimate(self, sizes: TileSizes, launch: Launch) -> ResourceUse:
        """The resources under one Config."""
        largest = max(self._tiles, key=lambda v: sizes.numel(v.tile.shape), default=None)
        elements = sizes.numel(largest.tile.shape) if largest else 1
        registers, resident = self._registers(sizes, launch)
        shared = self._shared.estimate(sizes, launch)
        return ResourceUse(
            tile_elements=elements,
            largest_tile=largest,
            registers=registers,
            largest_resident=resident,
            shared_bytes=shared.bytes,
            shared_tiles=shared.tiles,
            straight=self._code.length(sizes, launch, self._target.warp_size),
            operand_registers=self._operand_registers(sizes, launch),
            limits=self._limits(launch),
        )

    def _limits(self, launch: Launch) -> Limits:
        """What programs of that many warps are given."""
        if self._target.kind == "cuda":
            most = min(launch.maxnreg or 255, 255)
            registers = min(most, 65536 // (32 * launch.num_warps))
        else:
            # Each of 4 SIMD units has 512 registers per lane for the waves it holds, half of
            # them for accumulators; long straight code takes its compiler tens of seconds.
            most = 512 // max(1, launch.num_warps // 4)
            registers = min(most, 384 if self.pipeline.products else 128)
        return Limits(self._most_elements, registers, self._target.shared_bytes)

    def _registers(self, sizes: TileSizes, launch: Launch) -> tuple[int, Value | None]:
        """Per thread: all carried tiles of a loop nest, the largest other tile, and an overhead."""
        threads = launch.num_warps * self._target.warp_size

        def words(value: Value) -> int:
            return -(-tile_bytes(sizes, value) // (4 * threads))

        total = max((sum(map(words, values)) for values in self._nests), default=0)
        rest = max(map(words, self._passing), default=0)
        largest = max(self._resident, key=words, default=None)
        return total + rest + OVERHEAD_REGISTERS, largest

    def _operand_registers(self, sizes: TileSizes, launch: Launch) -> int:
        """A step of the operands where products read registers, and computed left operands."""
        lanes, most, computed = self._target.warp_size, 0, 0
        for product in self.pipeline.products:
            lhs = product.dot.lhs
            if product.lhs.load is None:
                computed = max(computed, tile_bytes(sizes, lhs) // (4 * launch.num_warps * lanes))
            if self.pipeline.is_asynchronous(product, sizes, launch):
                continue
            rows, columns = map(sizes.size, product.dot.result.tile.shape[-2:])
            step = 16 if self.pipeline.is_pipelined(product, sizes, launch) else 32
            step = min(step, sizes.size(lhs.tile.shape[-1])) * lhs.tile.dtype.itemsize
            m, n = warp_grid(rows, columns, launch.num_warps)
            most = max(most, (rows // m + columns // n) * step // (4 * lanes))
        return most + computed


def warp_grid(rows: int, columns: int, num_warps: int) -> tuple[int, int]:
    """How warps share the tile of a product that reads registers: along rows and columns."""
    m, n = 1, 1
    while m * n < num_warps:
        if rows * n >= columns * m and 16 * m < rows:
            m *= 2
        else:
            n *= 2
    return m, n


class StraightCode:
    """Measures the straight code of one function under different Configs."""

    def __init__(self, outline: FunctionOutline, exact: Iterable[Dot]) -> None:
        self._exact = {id(dot) for dot in exact}
        self._sites = tuple(
            site
            for site in outline.sites
            if isinstance(site.op, Load) or id(site.op) in self._exact
        )

    def length(self, sizes: TileSizes, launch: Launch, warp_size: int) -> CodeLength:
        """The longest that any thread has to go through."""
        threads = launch.num_warps * warp_size
        multiplied, loaded = 0, dict[int, int]()
        for site in self._sites:
            copies = _copies(site, launch)
            if isinstance(site.op, Dot):
                lhs, rhs = site.op.lhs.tile.shape, site.op.rhs.tile.shape
                number = copies * sizes.numel(lhs) * sizes.size(rhs[-1]) // threads
                multiplied = max(multiplied, number)
            elif isinstance(site.op, Load) and site.op.slot not in launch.descriptors:
                place = id(site.loops[-1]) if site.loops else 0
                elements = sizes.numel(site.op.result.tile.shape) // threads
                loaded[place] = loaded.get(place, 0) + copies * elements
        return CodeLength(multiplied, max(loaded.values(), default=0))


def _copies(site: Site, launch: Launch) -> int:
    """How often the code of an op is written out."""
    loops = [loop for loop in site.loops if isinstance(loop, Loop)]
    unrolls = [max(1, launch.loops.get(loop.slot, LoopUse()).unroll) for loop in loops]
    return prod(unrolls) * (max(1, launch.program_loop.unroll) if launch.is_persistent else 1)
