"""What a schedule needs of the device, in closed form: tile sizes, registers and shared memory.

The formulas reproduce the compiler's allocation for software-pipelined matrix products: a ring of
``stages`` buffers for each loaded operand where the tensor core reads shared memory (Hopper on, 64
rows and 4 warps or more), one fewer where copies are waited for a step earlier; a multiprocessor
has 65536 registers and a thread at most 255.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.control_flow import Loop
from tilesmith.ir.ops.elementwise import Cast
from tilesmith.ir.ops.indexing import Mask
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.memory import Load, Store
from tilesmith.ir.ops.shape import Broadcast, ExpandDims, Permute, Reshape
from tilesmith.ir.values import Value
from tilesmith.schedule.structure import Site, Structure
from tilesmith.schedule.tile_sizes import (
    MAX_CPU_TILE_ELEMENTS,
    MAX_TILE_ELEMENTS,
    TileSizes,
    distinct_tiles,
)
from tilesmith.targets import Target

OVERHEAD_REGISTERS = 24
MAX_UNROLLED_PRODUCTS = 4096
"""Multiply-adds per thread of a product without matrix units; more takes very long to compile."""
_VIEWS = (Mask, Cast, Permute, Reshape, Broadcast, ExpandDims)


@dataclass(frozen=True)
class LoopUse:
    """Stages (0: the kernel's) and unrolling of one loop."""

    num_stages: int = 0
    unroll: int = 1


@dataclass(frozen=True)
class Launch:
    """The part of a Config that resources depend on, besides sizes."""

    num_warps: int
    num_stages: int
    loops: Mapping[int, LoopUse]
    """By slot."""
    maxnreg: int | None = None
    descriptors: frozenset[int] = frozenset()
    """Slots of loads and stores that go through descriptors, and so through shared memory."""
    program_loop: LoopUse = LoopUse()
    is_fused: bool = False
    """Whether the loop over programs is flattened into the loops inside it."""


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

    Registers, shared memory and unrolled products are of GPUs; on CPUs they are 0.
    """

    tile_elements: int
    largest_tile: Value | None
    limits: Limits
    registers: int = 0
    largest_resident: Value | None = None
    shared_bytes: int = 0
    shared_tiles: tuple[Value, ...] = ()
    unrolled_products: int = 0

    @property
    def has_legal_tiles(self) -> bool:
        """Whether every tile is within what the language allows."""
        return self.tile_elements <= self.limits.tile_elements

    @property
    def fits_registers(self) -> bool:
        """Whether tiles stay in registers and products are of a reasonable length."""
        limit = self.limits.registers
        return not limit or (
            self.registers <= limit and self.unrolled_products <= MAX_UNROLLED_PRODUCTS
        )

    @property
    def fits_shared(self) -> bool:
        """Whether the operands of matrix products fit shared memory."""
        return not self.limits.shared_bytes or self.shared_bytes <= self.limits.shared_bytes

    @property
    def fits(self) -> bool:
        """Whether the kernel can be expected to build and to run without spilling."""
        return self.has_legal_tiles and self.fits_registers and self.fits_shared


class ResourceModel:
    """Estimates the resources of one function under different Configs."""

    def __init__(self, structure: Structure, target: Target) -> None:
        self._structure = structure
        self._target = target
        self._tiles = distinct_tiles(structure)
        self._dots = [site for site in structure.sites if isinstance(site.op, Dot)]
        self._sites = {id(site.op): site for site in structure.sites}
        self._operands = self._operand_chains()
        self._carried = {v for loop in structure.loops for v in loop.carried if v.tile.rank}
        by_type = {v.type: v for v in structure.tile_values if v not in self._operands}
        self._resident = tuple(by_type.values())

    def estimate(self, sizes: TileSizes, launch: Launch | None) -> ResourceUse:
        """The resources under one Config; a CPU has no launch."""
        largest = max(self._tiles, key=lambda v: sizes.numel(v.tile.shape), default=None)
        elements = sizes.numel(largest.tile.shape) if largest else 1
        if launch is None:
            return ResourceUse(elements, largest, Limits(0, 0, MAX_CPU_TILE_ELEMENTS))
        registers, resident = self._registers(sizes, launch)
        ring = {**self._stream_bytes(sizes, launch), **self._operand_bytes(sizes, launch)}
        copies = self._copy_bytes(sizes, launch)
        copied = max(copies.values(), default=0)
        return ResourceUse(
            tile_elements=elements,
            largest_tile=largest,
            registers=registers,
            largest_resident=resident,
            shared_bytes=self._total_shared(sizes, launch, sum(ring.values()), copied),
            shared_tiles=(*ring, *copies),
            unrolled_products=self._unrolled_products(sizes, launch),
            limits=Limits.of(self._target, launch, bool(self._dots)),
        )

    def _operand_chains(self) -> set[Value]:
        """Values on the way from a load to a matrix product: they live in shared memory."""
        found: set[Value] = set()
        for site in self._dots:
            for operand in _operands(site.op):
                chain, source = self._trace(operand)
                if isinstance(source, Load):
                    found.update(chain)
        return found

    def _trace(self, value: Value) -> tuple[list[Value], Operation | None]:
        chain = [value]
        op = self._structure.definitions.get(value)
        while isinstance(op, _VIEWS):
            chain.append(op.x)
            op = self._structure.definitions.get(op.x)
        return chain, op

    def _registers(self, sizes: TileSizes, launch: Launch) -> tuple[int, Value | None]:
        """Per thread: all carried tiles of a loop nest, the largest other tile, and an overhead."""
        threads = launch.num_warps * self._target.warp_size

        def words(value: Value) -> int:
            return -(-_tile_bytes(sizes, value) // (4 * threads))

        nests = [_carried_in_nest(site) for site in self._structure.sites]
        total = max((sum(map(words, values)) for values in nests), default=0)
        # An updated accumulator takes the place of the old one; it is no second copy.
        accumulators = {value.type for value in self._carried}
        others = [v for v in self._resident if v.type not in accumulators]
        rest = max(map(words, others), default=0)
        largest = max(self._resident, key=words, default=None)
        return total + rest + OVERHEAD_REGISTERS, largest

    def _total_shared(self, sizes: TileSizes, launch: Launch, ring: int, copied: int) -> int:
        epilogue = self._epilogue_bytes(sizes, launch)
        # In a fused loop the next tile's operands arrive while this one is stored.
        together = ring + epilogue if launch.is_fused else max(ring, epilogue)
        return max(together, ring + copied)

    def _stream_bytes(self, sizes: TileSizes, launch: Launch) -> dict[Value, int]:
        """Bytes for each load outside matrix products in a loop with stages of its own."""
        found: dict[Value, int] = {}
        for site in self._structure.sites:
            loop = site.innermost
            if not isinstance(site.op, Load) or not site.loops or not site.op.result.tile.rank:
                continue
            if loop is not None and loop.is_ordered:
                continue
            slot, value = (None if loop is None else loop.slot), site.op.result
            use = launch.program_loop if slot is None else launch.loops.get(slot, LoopUse())
            if value not in self._operands and use.num_stages > 1:
                buffers = (use.num_stages - 1) * max(1, use.unroll)
                found[value] = buffers * _tile_bytes(sizes, value)
        return found

    def _copy_bytes(self, sizes: TileSizes, launch: Launch) -> dict[Value, int]:
        """Bytes for each tile outside matrix products that a descriptor moves."""
        found: dict[Value, int] = {}
        for op in self._structure.accesses:
            value = op.result if isinstance(op, Load) else op.value
            if op.slot in launch.descriptors and value not in self._operands:
                found[value] = _tile_bytes(sizes, value)
        return found

    def _operand_bytes(self, sizes: TileSizes, launch: Launch) -> dict[Value, int]:
        """Bytes for each tile that matrix products read from shared memory."""
        found: dict[Value, int] = {}
        for site in self._dots:
            lhs, rhs = _operands(site.op)
            for operand in (lhs, rhs):
                _, source = self._trace(operand)
                if isinstance(source, Load):
                    bytes_ = _tile_bytes(sizes, source.result)
                    buffers = self._buffers(site, source, sizes, launch)
                    # AMD keeps a left operand that no loop changes in registers.
                    is_kept = operand is lhs and not buffers and self._target.kind == "hip"
                    needed = 0 if is_kept else bytes_ * max(1, buffers)
                    found[source.result] = max(found.get(source.result, 0), needed)
                elif operand is rhs:
                    found[operand] = _tile_bytes(sizes, operand)
        return found

    def _buffers(self, site: Site, load: Load, sizes: TileSizes, launch: Launch) -> int:
        """How many tiles of a pipelined load are in flight; 0 when it is not pipelined."""
        loop = site.innermost
        if loop is None or loop.is_ordered:
            return 0
        if self._sites[id(load)].innermost is not loop:
            return launch.num_stages if launch.is_fused else 0
        use = launch.loops.get(loop.slot, LoopUse())
        stages = use.num_stages or launch.num_stages
        is_asynchronous = self._is_asynchronous(site.op, sizes, launch)
        return max(1, stages if is_asynchronous else stages - 1) * max(1, use.unroll)

    def _is_asynchronous(self, dot: Operation, sizes: TileSizes, launch: Launch) -> bool:
        """Whether the product runs while the next one's operands arrive (Hopper on)."""
        rows = sizes.size(dot.result.tile.shape[-2])
        return self._target.capability >= 90 and rows >= 64 and launch.num_warps >= 4

    def _epilogue_bytes(self, sizes: TileSizes, launch: Launch) -> int:
        """The tile of an asynchronous product is rearranged in shared memory to be stored."""
        if not any(self._is_asynchronous(site.op, sizes, launch) for site in self._dots):
            return 0
        stores = self._structure.ops(Store)
        return max((_tile_bytes(sizes, op.value) for op in stores), default=0)

    def _unrolled_products(self, sizes: TileSizes, launch: Launch) -> int:
        threads = launch.num_warps * self._target.warp_size
        most = 0
        for site in self._dots:
            lhs, rhs = _operands(site.op)
            dot = site.op
            is_exact = lhs.tile.dtype.bits >= 32 and getattr(dot, "precision", "") == "ieee"
            if is_exact:
                products = sizes.numel(lhs.tile.shape) * sizes.size(rhs.tile.shape[-1])
                most = max(most, products // threads)
        return most


def _operands(dot: Operation) -> tuple[Value, Value]:
    assert isinstance(dot, Dot)
    return dot.lhs, dot.rhs


def _carried_in_nest(site: Site) -> list[Value]:
    """Tiles carried by a loop and by the loops around it."""
    loops = [loop for loop in (*site.loops, site.op) if isinstance(loop, Loop)]
    return [v for loop in loops for v in loop.carried if v.tile.rank]


def _tile_bytes(sizes: TileSizes, value: Value) -> int:
    return sizes.numel(value.tile.shape) * value.tile.dtype.itemsize
