"""What a schedule needs of a GPU, in closed form: registers, shared memory, straight code.

Registers are an estimate: a multiprocessor has 65536 of them and a thread at most 255; what is
carried by loops stays in them, and so do tiles of the straight part of a program. Compilers for
GPUs write a tile's elements out one by one, and a loop's body as often as it is unrolled: long
straight code spills, and takes minutes to compile.

Shared memory is as the Triton compiler allocates it. Buffers share memory in time. Three times
matter: a loop with matrix products (operands that are kept, rings of operands that arrive ahead,
tiles on their way between layouts), and the copy of a result for its store. Checked against
compiled kernels in test_shared_memory.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

from tilesmith.backends.triton.model.launch import PLAIN_LOOP, Launch
from tilesmith.backends.triton.model.shared_tiles import LoadPipeline, turned_tiles
from tilesmith.ir.ops.control_flow import Loop
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.memory import Atomic, Load, Store
from tilesmith.ir.types import Value
from tilesmith.schedule.facts.outline import FunctionOutline, Site
from tilesmith.schedule.model.estimates import CodeLength, Limits, ResourceUse
from tilesmith.schedule.model.program_work import Product
from tilesmith.schedule.rules import TargetedKernel
from tilesmith.targets import Target


@dataclass
class _LoopUse:
    """Bytes in one loop, and the tiles they hold."""

    ring: int = 0
    scratch: int = 0
    tiles: list[Value] = field(default_factory=list[Value])

    def add_ring(self, bytes_: int, tile: Value) -> None:
        self.ring += bytes_
        self.tiles.append(tile)


@dataclass(frozen=True)
class _SharedUse:
    """Bytes, and the tiles they hold at the time of the most."""

    bytes: int = 0
    tiles: tuple[Value, ...] = ()


class _SharedMemoryModel:
    """Estimates the shared memory of one function under different Configs."""

    def __init__(self, outline: FunctionOutline, target: Target, pipeline: LoadPipeline) -> None:
        self._outline = outline
        self._target = target
        self._pipeline = pipeline
        self._streams = tuple(
            (site.op, site.innermost)
            for site in outline.sites
            if isinstance(site.op, Load)
            and site.op.result.tile.rank
            and site.op.result not in pipeline.operands
            and site.loops
            and not (site.innermost and site.innermost.is_ordered)
        )
        self._stores = tuple(
            (site.op, site.innermost) for site in outline.sites if isinstance(site.op, Store)
        )
        self._turned = turned_tiles(outline) if target.kind == "cuda" else ()

    def estimate(self, launch: Launch) -> _SharedUse:
        loops: dict[Loop | None, _LoopUse] = {}
        for product in self._pipeline.products:
            use = loops.setdefault(product.loop, _LoopUse())
            self._add_product(use, product, launch)
        self._add_streams(loops, launch)
        copies = [self._first_copy(product, launch) for product in self._pipeline.products]
        copies += [_SharedUse(tile_bytes(launch, tile), (tile,)) for tile in self._turned]
        kept = [_SharedUse()]
        # Whether a tile is still being stored while the next program's operands arrive.
        keeps_copies = (launch.is_persistent and launch.num_stages > 1) or any(
            product.is_exact for product in self._pipeline.products
        )
        for store, loop in self._stores:
            copy = self._copy(store, launch)
            is_described = store.slot in launch.descriptors
            shape = store.value.tile.shape
            is_looped = loop is not None or any(dim in launch.sizes.rolled for dim in shape)
            if is_described and is_looped and launch.num_stages > 1:
                loops.setdefault(loop, _LoopUse()).add_ring(copy.bytes, store.value)
            elif is_described and keeps_copies:
                kept.append(copy)
            else:
                copies.append(copy)
        return self._at_most(loops, copies, kept, launch)

    @staticmethod
    def _at_most(
        loops: dict[Loop | None, _LoopUse],
        copies: list[_SharedUse],
        kept: list[_SharedUse],
        launch: Launch,
    ) -> _SharedUse:
        copied = max(copies, key=lambda use: use.bytes, default=_SharedUse())
        stored = max(kept, key=lambda use: use.bytes)
        found = [copied]
        for use in loops.values():
            # In a fused loop operands arrive while the last tile is on its way to its store.
            beside = copied.bytes if launch.is_fused and launch.num_stages > 1 else 0
            bytes_ = use.ring + max(use.scratch, beside)
            tiles = (*use.tiles, *copied.tiles) if beside > use.scratch else tuple(use.tiles)
            found.append(_SharedUse(bytes_, tiles))
        largest = max(found, key=lambda use: use.bytes)
        return _SharedUse(largest.bytes + stored.bytes, (*largest.tiles, *stored.tiles))

    def _add_product(self, use: _LoopUse, product: Product, launch: Launch) -> None:
        """Kept and arriving operands add up; the others of a product are there only during it."""
        is_asynchronous = self._pipeline.is_asynchronous(product, launch)
        waiting: dict[str, int] = {}
        before = use.ring
        for side, operand in (("lhs", product.lhs), ("rhs", product.rhs)):
            if operand.load is None:
                waiting[side] = self._computed_bytes(product, side, launch)
                continue
            tile = operand.load.result
            bytes_ = tile_bytes(launch, tile)
            buffers = self._pipeline.buffers(product, operand, launch)
            if buffers:
                use.add_ring(bytes_ * buffers, tile)
            elif operand.loop is product.loop or self._target.kind == "cuda":
                waiting[side] = 0 if operand.loop is not product.loop else bytes_
                if operand.loop is not product.loop:
                    use.add_ring(bytes_, tile)
        has_ring = use.ring > before
        # One operand may be in registers before the other takes the same memory.
        load = product.lhs.load
        is_early = load is not None and load.slot in launch.descriptors
        in_turn = is_early or self._target.kind == "hip"
        in_turn = in_turn and not is_asynchronous and not has_ring
        needed = max(waiting.values(), default=0) if in_turn else sum(waiting.values())
        if needed > use.scratch:
            use.scratch = needed
            use.tiles.extend((product.dot.lhs, product.dot.rhs))

    def _computed_bytes(self, product: Product, side: str, launch: Launch) -> int:
        """A computed operand: the right one is put into shared memory, the left one rearranged."""
        value = product.dot.lhs if side == "lhs" else product.dot.rhs
        bytes_ = tile_bytes(launch, value)
        if side == "rhs":
            return bytes_
        rows, columns = map(launch.sizes.size, product.dot.result.tile.shape[-2:])
        if self._target.kind == "hip":
            is_moved = value.tile.dtype.bits > 32 or 64 <= rows <= 16 * launch.num_warps
            return bytes_ if is_moved else 0
        is_in_place = (rows >= columns and not product.is_exact) or launch.num_warps == 1
        is_in_place = is_in_place or self._pipeline.is_asynchronous(product, launch)
        return 0 if is_in_place else bytes_

    def _add_streams(self, loops: dict[Loop | None, _LoopUse], launch: Launch) -> None:
        """Loads outside products: in loops with stages of their own, and through descriptors."""
        if self._target.kind == "hip":
            return
        has_loops = bool(self._outline.loops or launch.sizes.rolled)
        for load, loop in self._streams:
            # Only innermost loops start loads ahead.
            outer = PLAIN_LOOP if has_loops else launch.program_loop
            use = outer if loop is None else launch.loops.get(loop.slot, PLAIN_LOOP)
            own = (use.num_stages - 1) * max(1, use.unroll_factor)
            buffers = own if own > 0 else self._pipeline.ahead(load, loop, launch)
            if buffers:
                bytes_ = tile_bytes(launch, load.result)
                loops.setdefault(loop, _LoopUse()).add_ring(buffers * bytes_, load.result)

    def _first_copy(self, product: Product, launch: Launch) -> _SharedUse:
        """AMD brings an operand that no loop changes into registers, before the loop."""
        found = [
            _SharedUse(tile_bytes(launch, operand.load.result), (operand.load.result,))
            for operand in (product.lhs, product.rhs)
            if operand.load is not None and operand.loop is not product.loop
        ]
        return max(found, key=lambda use: use.bytes, default=_SharedUse())

    def _copy(self, store: Store, launch: Launch) -> _SharedUse:
        """The copy of a stored tile: for a descriptor whole, for coalescing in parts."""
        bytes_ = tile_bytes(launch, store.value)
        if store.slot in launch.descriptors:
            bytes_ = bytes_ // launch.store_parts + self._shuffled(store, launch)
            return _SharedUse(bytes_, (store.value,))
        shape = store.value.tile.shape
        products = self._products_of(store)
        if not products or self._target.kind == "hip":
            return _SharedUse()
        if self._pipeline.is_asynchronous(products[-1], launch):
            bytes_ = _rearranged(launch, store.value)
        elif products[-1].is_exact:
            at_once = 16 * store.value.tile.dtype.itemsize
            bytes_ = min(bytes_, at_once * launch.num_warps * self._target.warp_size)
        elif launch.sizes.size(shape[-1]) > launch.sizes.size(shape[-2]):
            bytes_ //= 2
        return _SharedUse(bytes_, (store.value,))

    def _products_of(self, store: Store) -> list[Product]:
        shape = store.value.tile.shape[-2:]
        return [p for p in self._pipeline.products if p.dot.result.tile.shape[-2:] == shape]

    def _shuffled(self, store: Store, launch: Launch) -> int:
        """Bytes on their way between warps that share rows, where a tile is stored in parts."""
        if launch.store_parts == 1 or not self._products_of(store):
            return 0
        rows = launch.sizes.size(store.value.tile.shape[-2])
        return tile_bytes(launch, store.value) if rows < 16 * launch.num_warps else 0


def _rearranged(launch: Launch, value: Value) -> int:
    """Bytes of a tile of an asynchronous product on its way to rows along memory.

    Parts that the same register holds before and after are moved one after the other.
    """
    rows, columns = (launch.sizes.size(dim) for dim in value.tile.shape[-2:])
    itemsize = value.tile.dtype.itemsize
    warps_along_rows = min(launch.num_warps, max(4, rows // 16))
    lanes_along_row = min(32, max(1, columns * itemsize // 16))
    first = 32 // lanes_along_row * launch.num_warps
    own = [8, *(1 << e for e in range(30) if 16 * warps_along_rows <= 1 << e < rows)]
    parts = sum(bit >= first for bit in own)
    return launch.sizes.numel(value.tile.shape) * itemsize >> parts


def tile_bytes(launch: Launch, value: Value) -> int:
    """Bytes of a tile at its physical size."""
    return launch.sizes.numel(value.tile.shape) * value.tile.dtype.itemsize


OVERHEAD_REGISTERS = 24


class ResourceModel:
    """Estimates the resources of one function under different Configs."""

    def __init__(self, kernel: TargetedKernel) -> None:
        outline = kernel.outline
        self._kernel = kernel
        self._target = kernel.target
        self.pipeline = LoadPipeline(outline, kernel.target, kernel.facts.accesses)
        self._shared = _SharedMemoryModel(outline, kernel.target, self.pipeline)
        exact = {id(product.dot) for product in self.pipeline.products if product.is_exact}
        self._straight = [
            site
            for site in outline.sites
            if isinstance(site.op, (Load, Store, Atomic)) or id(site.op) in exact
        ]
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

    def estimate(self, launch: Launch) -> ResourceUse:
        """The resources under one Config."""
        elements, largest = self._kernel.largest_tile(launch.sizes)
        registers, resident = self._registers(launch)
        shared = self._shared.estimate(launch)
        return ResourceUse(
            tile_elements=elements,
            largest_tile=largest,
            registers=registers,
            largest_resident=resident,
            shared_bytes=shared.bytes,
            shared_tiles=shared.tiles,
            straight=self._code_length(launch),
            operand_registers=self._operand_registers(launch),
            limits=self._limits(launch),
        )

    def _limits(self, launch: Launch) -> Limits:
        if self._target.kind == "cuda":
            most = min(launch.maxnreg or 255, 255)
            registers = min(most, 65536 // (32 * launch.num_warps))
        else:
            # Each of 4 SIMD units has 512 registers per lane for the waves it holds, half of
            # them for accumulators; long straight code takes its compiler tens of seconds.
            most = 512 // max(1, launch.num_warps // 4)
            registers = min(most, 384 if self.pipeline.products else 128)
        return Limits(self._kernel.rules.sizes.most_elements, registers, self._target.shared_bytes)

    def _registers(self, launch: Launch) -> tuple[int, Value | None]:
        """Per thread: all carried tiles of a loop nest, the largest other tile, and an overhead."""
        threads = launch.num_warps * self._target.warp_size

        def words(value: Value) -> int:
            return -(-tile_bytes(launch, value) // (4 * threads))

        total = max((sum(map(words, values)) for values in self._nests), default=0)
        rest = max(map(words, self._passing), default=0)
        largest = max(self._resident, key=words, default=None)
        return total + rest + OVERHEAD_REGISTERS, largest

    def _operand_registers(self, launch: Launch) -> int:
        """A step of the operands where products read registers, and computed left operands."""
        lanes, most, computed = self._target.warp_size, 0, 0
        for product in self.pipeline.products:
            lhs = product.dot.lhs
            if product.lhs.load is None:
                computed = max(computed, tile_bytes(launch, lhs) // (4 * launch.num_warps * lanes))
            if self.pipeline.is_asynchronous(product, launch):
                continue
            rows, columns = map(launch.sizes.size, product.dot.result.tile.shape[-2:])
            step = 16 if self.pipeline.is_pipelined(product, launch) else 32
            step = min(step, launch.sizes.size(lhs.tile.shape[-1])) * lhs.tile.dtype.itemsize
            m, n = warp_grid(rows, columns, launch.num_warps)
            most = max(most, (rows // m + columns // n) * step // (4 * lanes))
        return most + computed

    def _code_length(self, launch: Launch) -> CodeLength:
        """The longest product that a thread computes, and what it reads and writes in all."""
        threads = launch.num_warps * self._target.warp_size
        multiplied = accessed = 0
        for site in self._straight:
            copies = _copies(site, launch)
            if isinstance(site.op, Dot):
                lhs, rhs = site.op.lhs.tile.shape, site.op.rhs.tile.shape
                number = copies * launch.sizes.numel(lhs) * launch.sizes.size(rhs[-1]) // threads
                multiplied = max(multiplied, number)
            elif not isinstance(site.op, (Load, Store)) or site.op.slot not in launch.descriptors:
                value = (
                    site.op.value if isinstance(site.op, (Store, Atomic)) else site.op.results[0]
                )
                accessed += copies * (launch.sizes.numel(value.tile.shape) // threads)
        return CodeLength(multiplied, accessed)


def warp_grid(rows: int, columns: int, num_warps: int) -> tuple[int, int]:
    """How warps share the tile of a product that reads registers: along rows and columns."""
    m, n = 1, 1
    while m * n < num_warps:
        if rows * n >= columns * m and 16 * m < rows:
            m *= 2
        else:
            n *= 2
    return m, n


def _copies(site: Site, launch: Launch) -> int:
    """How often the code of an op is written out."""
    loops = [loop for loop in site.loops if isinstance(loop, Loop)]
    unrolls = [
        launch.turns.get(loop.slot) or max(1, launch.loops.get(loop.slot, PLAIN_LOOP).unroll_factor)
        for loop in loops
    ]
    return prod(unrolls) * (
        max(1, launch.program_loop.unroll_factor) if launch.is_persistent else 1
    )
