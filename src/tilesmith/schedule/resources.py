"""What a schedule needs of the device, in closed form: tile sizes, registers and shared memory.

Registers are an estimate: a multiprocessor has 65536 of them and a thread at most 255; what is
carried by loops stays in them, and so do tiles of the straight part of a program.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from tilesmith.ir.ops.control_flow import Loop
from tilesmith.ir.values import Value
from tilesmith.schedule.facts.accesses import AccessFact
from tilesmith.schedule.facts.outline import FunctionOutline, Site
from tilesmith.schedule.launch import Launch
from tilesmith.schedule.operand_pipeline import OperandPipeline
from tilesmith.schedule.shared_memory import SharedMemoryModel, tile_bytes
from tilesmith.schedule.space.tile_sizes import (
    MAX_CPU_TILE_ELEMENTS,
    MAX_TILE_ELEMENTS,
    TileSizes,
    distinct_tiles,
)
from tilesmith.schedule.straight_code import NO_CODE, CodeLength, StraightCode
from tilesmith.targets import Target

OVERHEAD_REGISTERS = 24
SPILL_FROM = 1.05
"""Of the registers there are: compiled kernels with fewer rarely spilled."""


class Pressure(str, Enum):
    """How full the registers of a thread are."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    SPILLS = "spills"


@dataclass(frozen=True)
class Limits:
    """What a target gives one program."""

    registers: int
    """Per thread, in 32-bit words; 0 for no limit."""
    shared_bytes: int
    tile_elements: int = MAX_TILE_ELEMENTS
    """The most that one tile may have."""

    @staticmethod
    def of(target: Target, launch: Launch, has_dots: bool) -> Limits:
        """The limits for programs of that many warps."""
        if target.kind == "cuda":
            most = min(launch.maxnreg or 255, 255)
            return Limits(min(most, 65536 // (32 * launch.num_warps)), target.shared_bytes)
        # Each of 4 SIMD units has 512 registers per lane for the waves it holds, half of
        # them for accumulators; long straight code takes its compiler tens of seconds.
        most = 512 // max(1, launch.num_warps // 4)
        return Limits(min(most, 384 if has_dots else 128), target.shared_bytes)


@dataclass(frozen=True)
class ResourceUse:
    """An estimate, with the value that asks for most where there is one.

    Registers, shared memory and straight code are of GPUs; on CPUs they are 0.
    """

    tile_elements: int
    largest_tile: Value | None
    limits: Limits
    registers: int = 0
    largest_resident: Value | None = None
    shared_bytes: int = 0
    shared_tiles: tuple[Value, ...] = ()
    straight: CodeLength = NO_CODE
    operand_registers: int = 0
    """Per thread, for operands of products on their way; part of the pressure, not of a limit."""

    @property
    def has_legal_tiles(self) -> bool:
        """Whether every tile is within what the language allows."""
        return self.tile_elements <= self.limits.tile_elements

    @property
    def fits_registers(self) -> bool:
        """Whether tiles stay in registers."""
        return not self.limits.registers or self.registers <= self.limits.registers

    @property
    def fits_shared(self) -> bool:
        """Whether the operands of matrix products fit shared memory."""
        return not self.limits.shared_bytes or self.shared_bytes <= self.limits.shared_bytes

    @property
    def fits(self) -> bool:
        """Whether the kernel can be expected to build and to run without spilling."""
        fits = self.has_legal_tiles and self.fits_registers and self.fits_shared
        return fits and self.straight.is_short

    @property
    def can_be_built(self) -> bool:
        """Whether the kernel can be expected to build, if only by keeping values in memory."""
        return self.has_legal_tiles and self.fits_shared and self.straight.is_compilable

    @property
    def expected_registers(self) -> int:
        """Per thread, operands included."""
        return self.registers + self.operand_registers

    @property
    def pressure(self) -> Pressure:
        """How full the registers are."""
        limit, expected = self.limits.registers, self.expected_registers
        if not limit or 2 * expected <= limit:
            return Pressure.LOW
        if expected > SPILL_FROM * limit:
            return Pressure.SPILLS
        return Pressure.HIGH if 8 * expected > 7 * limit else Pressure.MEDIUM


class ResourceModel:
    """Estimates the resources of one function under different Configs."""

    def __init__(
        self, structure: FunctionOutline, target: Target, accesses: Iterable[AccessFact]
    ) -> None:
        self._structure = structure
        self._target = target
        self.pipeline = OperandPipeline(structure, target, accesses)
        self._shared = SharedMemoryModel(structure, target, self.pipeline)
        exact = [product.dot for product in self.pipeline.products if product.is_exact]
        self._code = StraightCode(structure, exact)
        self._tiles = distinct_tiles(structure)
        self._nests = _carried_nests(structure)
        carried = {value.type for nest in self._nests for value in nest}
        by_type = {v.type: v for v in structure.tile_values if v not in self.pipeline.operands}
        self._resident = tuple(by_type.values())
        # An updated accumulator takes the place of the old one; it is no second copy.
        self._passing = tuple(v for v in self._resident if v.type not in carried)

    def estimate(self, sizes: TileSizes, launch: Launch | None) -> ResourceUse:
        """The resources under one Config; a CPU has no launch."""
        largest = max(self._tiles, key=lambda v: sizes.numel(v.tile.shape), default=None)
        elements = sizes.numel(largest.tile.shape) if largest else 1
        if launch is None:
            return ResourceUse(elements, largest, Limits(0, 0, MAX_CPU_TILE_ELEMENTS))
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
            limits=Limits.of(self._target, launch, bool(self.pipeline.products)),
        )

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


def _carried_nests(structure: FunctionOutline) -> tuple[tuple[Value, ...], ...]:
    """Tiles carried by each loop and by the loops around it."""
    found = [_carried_in_nest(site) for site in structure.sites if isinstance(site.op, Loop)]
    return tuple(filter(None, found))


def _carried_in_nest(site: Site) -> tuple[Value, ...]:
    loops = [loop for loop in (*site.loops, site.op) if isinstance(loop, Loop)]
    return tuple(v for loop in loops for v in loop.carried if v.tile.rank)
