"""Operands in flight, and shared memory as the Triton compiler allocates it.

Buffers share memory in time. Three times matter: a loop with matrix products (operands that are
kept, rings of operands that arrive ahead, tiles on their way between layouts), and the copy of a
result for its store. Checked against compiled kernels in test_shared_memory.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tilesmith.backends.triton.model.launch import Launch, LoopUse
from tilesmith.ir.ops.control_flow import Loop
from tilesmith.ir.ops.memory import Load, Store
from tilesmith.ir.types import Value
from tilesmith.schedule.facts.accesses import AccessFact
from tilesmith.schedule.facts.outline import FunctionOutline
from tilesmith.schedule.model.program_work import Operand, Product, Products
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
        is_chained = any(p.lhs.load is None for p in self.products if p.loop is loop)
        if self._target.kind == "hip" and stages == CHAINED_STAGES_HIP and is_chained:
            return 1
        ahead = stages if self.is_asynchronous(product, sizes, launch) else stages - 1
        return ahead * max(1, use.unroll)

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
class SharedUse:
    """Bytes, and the tiles they hold at the time of the most."""

    bytes: int = 0
    tiles: tuple[Value, ...] = ()


class SharedMemoryModel:
    """Estimates the shared memory of one function under different Configs."""

    def __init__(self, outline: FunctionOutline, target: Target, pipeline: OperandPipeline) -> None:
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

    def estimate(self, sizes: TileSizes, launch: Launch) -> SharedUse:
        """Bytes under one Config."""
        loops: dict[Loop | None, _LoopUse] = {}
        for product in self._pipeline.products:
            use = loops.setdefault(product.loop, _LoopUse())
            self._add_product(use, product, sizes, launch)
        self._add_streams(loops, sizes, launch)
        copies = [self._first_copy(product, sizes) for product in self._pipeline.products]
        kept = [SharedUse()]
        # Whether a tile is still being stored while the next program's operands arrive.
        keeps_copies = (launch.is_persistent and launch.num_stages > 1) or any(
            product.is_exact for product in self._pipeline.products
        )
        for store, loop in self._stores:
            copy = self._copy(store, sizes, launch)
            is_described = store.slot in launch.descriptors
            is_looped = loop is not None or any(d in sizes.rolled for d in store.value.tile.shape)
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
        copies: list[SharedUse],
        kept: list[SharedUse],
        launch: Launch,
    ) -> SharedUse:
        copied = max(copies, key=lambda use: use.bytes, default=SharedUse())
        stored = max(kept, key=lambda use: use.bytes)
        found = [copied]
        for use in loops.values():
            # In a fused loop operands arrive while the last tile is on its way to its store.
            beside = copied.bytes if launch.is_fused and launch.num_stages > 1 else 0
            bytes_ = use.ring + max(use.scratch, beside)
            tiles = (*use.tiles, *copied.tiles) if beside > use.scratch else tuple(use.tiles)
            found.append(SharedUse(bytes_, tiles))
        largest = max(found, key=lambda use: use.bytes)
        return SharedUse(largest.bytes + stored.bytes, (*largest.tiles, *stored.tiles))

    def _add_product(
        self, use: _LoopUse, product: Product, sizes: TileSizes, launch: Launch
    ) -> None:
        """Kept and arriving operands add up; the others of a product are there only during it."""
        is_asynchronous = self._pipeline.is_asynchronous(product, sizes, launch)
        waiting: dict[str, int] = {}
        before = use.ring
        for side, operand in (("lhs", product.lhs), ("rhs", product.rhs)):
            if operand.load is None:
                waiting[side] = self._computed_bytes(product, side, sizes, launch)
                continue
            tile = operand.load.result
            bytes_ = tile_bytes(sizes, tile)
            buffers = self._pipeline.buffers(product, operand, sizes, launch)
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

    def _computed_bytes(self, product: Product, side: str, sizes: TileSizes, launch: Launch) -> int:
        """A computed operand: the right one is put into shared memory, the left one rearranged."""
        value = product.dot.lhs if side == "lhs" else product.dot.rhs
        bytes_ = tile_bytes(sizes, value)
        if side == "rhs":
            return bytes_
        rows, columns = map(sizes.size, product.dot.result.tile.shape[-2:])
        if self._target.kind == "hip":
            is_moved = value.tile.dtype.bits > 32 or 64 <= rows <= 16 * launch.num_warps
            return bytes_ if is_moved else 0
        is_in_place = (rows >= columns and not product.is_exact) or launch.num_warps == 1
        is_in_place = is_in_place or self._pipeline.is_asynchronous(product, sizes, launch)
        return 0 if is_in_place else bytes_

    def _add_streams(
        self, loops: dict[Loop | None, _LoopUse], sizes: TileSizes, launch: Launch
    ) -> None:
        """Loads outside products: in loops with stages of their own, and through descriptors."""
        if self._target.kind == "hip":
            return
        has_loops = bool(self._outline.loops or sizes.rolled)
        for load, loop in self._streams:
            # Only innermost loops start loads ahead.
            outer = LoopUse() if has_loops else launch.program_loop
            use = outer if loop is None else launch.loops.get(loop.slot, LoopUse())
            buffers = (use.num_stages - 1) * max(1, use.unroll)
            if use.num_stages <= 1:
                buffers = int(load.slot in launch.descriptors)
            if buffers:
                bytes_ = tile_bytes(sizes, load.result)
                loops.setdefault(loop, _LoopUse()).add_ring(buffers * bytes_, load.result)

    def _first_copy(self, product: Product, sizes: TileSizes) -> SharedUse:
        """AMD brings an operand that no loop changes into registers, before the loop."""
        found = [
            SharedUse(tile_bytes(sizes, operand.load.result), (operand.load.result,))
            for operand in (product.lhs, product.rhs)
            if operand.load is not None and operand.loop is not product.loop
        ]
        return max(found, key=lambda use: use.bytes, default=SharedUse())

    def _copy(self, store: Store, sizes: TileSizes, launch: Launch) -> SharedUse:
        """The copy of a stored tile: for a descriptor whole, for coalescing in parts."""
        bytes_ = tile_bytes(sizes, store.value)
        if store.slot in launch.descriptors:
            bytes_ = bytes_ // launch.store_parts + self._shuffled(store, sizes, launch)
            return SharedUse(bytes_, (store.value,))
        shape = store.value.tile.shape
        products = self._products_of(store)
        if not products or self._target.kind == "hip":
            return SharedUse()
        if self._pipeline.is_asynchronous(products[-1], sizes, launch):
            bytes_ = _rearranged(sizes, store.value, launch.num_warps)
        elif products[-1].is_exact:
            at_once = 16 * store.value.tile.dtype.itemsize
            bytes_ = min(bytes_, at_once * launch.num_warps * self._target.warp_size)
        elif sizes.size(shape[-1]) > sizes.size(shape[-2]):
            bytes_ //= 2
        return SharedUse(bytes_, (store.value,))

    def _products_of(self, store: Store) -> list[Product]:
        """Products whose tiles have the shape of a stored one."""
        shape = store.value.tile.shape[-2:]
        return [p for p in self._pipeline.products if p.dot.result.tile.shape[-2:] == shape]

    def _shuffled(self, store: Store, sizes: TileSizes, launch: Launch) -> int:
        """Bytes on their way between warps that share rows, where a tile is stored in parts."""
        if launch.store_parts == 1 or not self._products_of(store):
            return 0
        rows = sizes.size(store.value.tile.shape[-2])
        return tile_bytes(sizes, store.value) if rows < 16 * launch.num_warps else 0


def _rearranged(sizes: TileSizes, value: Value, num_warps: int) -> int:
    """Bytes of a tile of an asynchronous product on its way to rows along memory.

    Parts that the same register holds before and after are moved one after the other.
    """
    rows, columns = (sizes.size(dim) for dim in value.tile.shape[-2:])
    itemsize = value.tile.dtype.itemsize
    warps_along_rows = min(num_warps, max(4, rows // 16))
    lanes_along_row = min(32, max(1, columns * itemsize // 16))
    first = 32 // lanes_along_row * num_warps
    own = [8, *(1 << e for e in range(30) if 16 * warps_along_rows <= 1 << e < rows)]
    parts = sum(bit >= first for bit in own)
    return sizes.numel(value.tile.shape) * itemsize >> parts


def tile_bytes(sizes: TileSizes, value: Value) -> int:
    """Bytes of a tile at its physical size."""
    return sizes.numel(value.tile.shape) * value.tile.dtype.itemsize
