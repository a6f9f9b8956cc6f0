"""Tiles in shared memory: how the copy engine is told of them, where they lie, their views."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import prod

from tilesmith.backends.triton.emission.spelling import Expr
from tilesmith.backends.triton.ops.accesses import (
    BlockAccess,
    Descriptor,
    find_block_access,
    find_descriptor,
)
from tilesmith.backends.triton.warp_roles.emitter import ROWS, RoleEmitter
from tilesmith.backends.triton.warp_roles.layouts import Layout
from tilesmith.backends.triton.warp_roles.listed.steps import (
    BYTE,
    LEAST_FP8_STEP,
    LEAST_STEP,
    find_length,
    has_fp8,
    needs_whole_steps,
    whole_steps,
)
from tilesmith.backends.triton.warp_roles.order import find_order, find_vectors
from tilesmith.backends.triton.warp_roles.plan import Product, RolePlan
from tilesmith.backends.triton.warp_roles.protocol import (
    BARRIER_BYTES,
    MOST_COLUMNS,
    SHARED_BYTES,
    Ring,
    find_rings,
    find_staggered_rings,
)
from tilesmith.backends.triton.warp_roles.refusals import Refusal
from tilesmith.dtypes import DType
from tilesmith.exc import InvalidConfig
from tilesmith.ir.ops.memory import Load, Store
from tilesmith.ir.types import Dim, Shape, Value
from tilesmith.schedule.config import is_persistent
from tilesmith.schedule.facts.accesses import AccessFact
from tilesmith.schedule.rules import TargetedKernel
from tilesmith.schedule.schedule import Schedule

SWIZZLED_BYTES = (128, 64, 32)
"""Widths over which rows of a tile are shuffled, so that matrix units read without conflicts."""


@dataclass(frozen=True)
class CopiedTile:
    """A tile that the copy engine moves between a tensor and a buffer in shared memory."""

    dtype: DType
    descriptor: Descriptor
    access: BlockAccess
    block: tuple[int, ...]
    """Sizes in the order of the descriptor's axes."""
    rows: Dim
    """The axis that groups share."""
    programs: int = 1
    """That share the tile: each has some of its rows."""

    @property
    def has_group_rows(self) -> bool:
        """Whether each group has a buffer of its own, with its rows."""
        return any(axis.dim == self.rows for axis in self.descriptor.axes)

    @property
    def num_bytes(self) -> int:
        """Of one buffer."""
        shares = self.programs if self.has_group_rows else 1
        return prod(self.block) * self.dtype.itemsize // shares

    @property
    def layout(self) -> str:
        """How a buffer is arranged, for the copy engine and the matrix units alike."""
        plain = shared_layout(self.block, self.dtype)
        basis = [int(axis.dim == self.rows) for axis in self.descriptor.axes]
        return plain if self.programs == 1 else f"{plain[:-1]}, cga_layout={[basis]})"

    def position(self, group: str) -> str:
        """The first index along each axis, as the copy engine takes it."""
        return self.piece_position(group, 0)

    def piece_position(self, group: str, further: int) -> str:
        """The same, so much further along rows."""
        before = Expr(f"{group} * {ROWS}")
        starts = [
            axis.start + before if axis.dim == self.rows else axis.start
            for axis in self.descriptor.axes
        ]
        starts[-1] = starts[-1] + further
        return f"[{', '.join(map(str, starts))}]"

    def view(self, buffer: str, *, is_turned: bool = False) -> str:
        """A buffer as the matrix that the IR has, axes of size 1 left out; or its transpose."""
        tiles = [axis for axis in self.descriptor.axes if not axis.dim.is_one]
        if len(tiles) < len(self.block):
            sizes = zip(self.block, self.descriptor.axes)
            buffer = f"{buffer}.reshape({[size for size, axis in sizes if not axis.dim.is_one]})"
        is_turned ^= list(self.access.tiles) != tiles
        return f"{buffer}.permute((1, 0))" if is_turned else buffer


def shared_layout(block: tuple[int, ...], dtype: DType) -> str:
    """The widest arrangement that a block of so many rows and bytes can have."""
    row = block[-1] * dtype.itemsize
    is_flat = prod(block[:-1]) < 8
    width = 0 if is_flat else next((width for width in SWIZZLED_BYTES if row % width == 0), 0)
    return f"gl.NVMMASharedLayout({width}, {dtype.bits}, {len(block)})"


def find_copy(
    emitter: RoleEmitter, op: Load | Store, *, is_whole: bool = False, parts: int = 1
) -> CopiedTile | None:
    """How the copy engine moves what an access touches; None where it cannot.

    ``is_whole``: others see to lanes that the source leaves out. With ``parts``, one of them.
    """
    shape: Shape = op.result.tile.shape if isinstance(op, Load) else op.value.tile.shape
    with emitter.whole_tiles(is_whole=is_whole):
        access = find_block_access(emitter, op.tensor, op.indices, shape)
    descriptor = None if access is None else find_descriptor(emitter, access, parts)
    is_wide = is_whole and any(index.tile.dtype.bits > 32 for index in op.indices)
    if access is None or descriptor is None or is_wide or (op.mask is not None and not is_whole):
        return None
    dims = tuple(axis.dim for axis in descriptor.axes)
    (*sides, row), dtype = emitter.schedule.physical_shape(dims), op.tensor.tensor.dtype
    block = (*sides, row // parts)
    made = CopiedTile(dtype, descriptor, access, block, Dim.of(emitter.rows), emitter.programs)
    described = emitter.spelling.needs.descriptions
    for item in [item for item, name in described.items() if name == descriptor.name]:
        name = described.pop(item)
        # Another access may have such tiles of the same tensor.
        name = described.setdefault(replace(item, layout=made.layout), name)
        made = replace(made, descriptor=replace(descriptor, name=name))
    return made


@dataclass
class Buffers:
    """All tiles that are copied into shared memory, and the rings that they lie in."""

    plan: RolePlan
    schedule: Schedule
    groups: int
    tiles: dict[Load, CopiedTile] = field(default_factory=dict[Load, CopiedTile])
    barrier_bytes = BARRIER_BYTES

    def find_tiles(self, emitter: RoleEmitter) -> None:
        """Of products, which must be copied, and vectors, which can be."""
        for load in (*self.plan.kept, *self.plan.ring):
            tile = find_copy(emitter, load, is_whole=load in self.plan.longer)
            if tile is None:
                raise InvalidConfig(
                    problem=f"the copy engine cannot load tiles of {load.tensor.name}",
                    loc=load.loc,
                    expected="tiles that end where the tensor ends, in multiples of 16 bytes",
                    fix='other block_sizes, or a config without structure="warp_roles"',
                )
            self.tiles[load] = tile
        found = {load: find_copy(emitter, load) for load in find_vectors(self.plan)}
        self.tiles |= {load: tile for load, tile in found.items() if tile is not None}

    @property
    def has_key_order(self) -> bool:
        """Whether rows of some tile have an order of their own."""
        return any(len(tile.block) > len(tile.descriptor.axes) for tile in self.tiles.values())

    @property
    def vectors(self) -> list[Load]:
        """Those that are copied."""
        return [load for load in find_vectors(self.plan) if load in self.tiles]

    @property
    def rings(self) -> dict[str, Ring]:
        """The longest that fit."""
        is_looped = is_persistent(self.schedule.pid_type)
        rings: dict[str, Ring] = {}
        for kept, has_all in ((2 if is_looped else 1, True), (1, True), (1, False)):
            rings = self._find_rings(kept, has_all=has_all)
            if self._count_bytes(rings) <= SHARED_BYTES:
                break
        return rings

    def _find_rings(self, kept: int, *, has_all: bool) -> dict[str, Ring]:
        """``has_all``: tiles of deferred products have as much room as the others."""
        order, stages = find_order(self.plan), self.schedule.num_stages
        if order is None:
            return find_rings(self.plan, self.vectors, kept)
        # Three groups are compiled wrongly with rings of two slots.
        is_whole = has_all or self.groups > 2
        fewest = stages if is_whole else order.fewest_deferred(stages)
        lengths = kept, "STAGES" if fewest == stages else str(fewest)
        return find_staggered_rings(self.plan, order, self.vectors, lengths)

    @property
    def num_bytes(self) -> int:
        """Shared memory of the rings and their barriers."""
        return self._count_bytes(self.rings)

    def _count_bytes(self, rings: Mapping[str, Ring]) -> int:
        return self.barrier_bytes + sum(
            self.count(load, ring) * self.tiles[load].num_bytes
            for ring in rings.values()
            for load in ring.loads
        )

    def count(self, load: Load, ring: Ring) -> int:
        """Buffers of a load."""
        length = self.schedule.num_stages if ring.length == "STAGES" else int(ring.length)
        return length * (self.groups if self.tiles[load].has_group_rows else 1)


def find_narrow_side(kernel: TargetedKernel, plan: RolePlan) -> Refusal | None:
    """Why tiles with a side of less than two elements have no roles: there is nothing to copy."""
    sides = [name for name in plan.sides if kernel.outline.extent(Dim.of(name)) in (0, 1)]
    return Refusal(f"{sides[0]} has one element, or none", plan.grid.loc) if sides else None


def fits_form(kernel: TargetedKernel, plan: RolePlan) -> Refusal | None:
    """Why the copy engine or the matrix units cannot serve a plan; None when they can."""
    facts = {fact.slot: fact for fact in kernel.facts.accesses if fact.kind == "load"}
    for load in (*plan.kept, *plan.ring):
        if load.slot not in facts or not facts[load.slot].fits_descriptor:
            return Refusal(f"the copy engine cannot load {load.tensor.name}", load.loc)
    is_known = find_length(kernel, plan) is not None
    if plan.cleared and needs_whole_steps(plan) and not is_known:
        return Refusal("its loop may end before a tensor does", plan.loop.loc)
    narrow = find_narrow_side(kernel, plan)
    if narrow is not None:
        return narrow
    if whole_steps(kernel, plan, LEAST_FP8_STEP) % (
        LEAST_FP8_STEP if has_fp8(plan) else LEAST_STEP
    ):
        return Refusal("its loop begins or ends between whole tiles", plan.loop.loc)
    if kernel.outline.function.sizes:
        return Refusal("its tiles have sizes that are known at run time only", plan.grid.loc)
    for product in plan.products:
        if not _lies_along_sum(product, facts):
            return Refusal("8-bit operands that do not lie along the sum", product.dot.loc)
        columns = product.dot.result.tile.shape[-1].constant
        if columns is not None and (columns > MOST_COLUMNS or columns & (columns - 1)):
            return Refusal(f"a product has {columns} columns", product.dot.loc)
    return None


def _lies_along_sum(product: Product, facts: Mapping[int, AccessFact]) -> bool:
    """Whether rows of copied operands are what is summed; matrix units can turn 16-bit ones."""
    operands = ((product.lhs, product.dot.lhs, -1), (product.rhs, product.dot.rhs, -2))
    return all(
        load is None
        or load.result.tile.dtype.bits > BYTE
        or facts[load.slot].contiguous_dim == operand.tile.shape[axis]
        for load, operand, axis in operands
    )


@dataclass(frozen=True)
class Shared:
    """What all roles know: the plan, its rings, the tiles that are copied, layouts."""

    plan: RolePlan
    rings: Mapping[str, Ring]
    tiles: Mapping[Load, CopiedTile]
    layouts: Mapping[Value, Layout]
    groups: int
    has_key_order: bool = False
    """Whether columns of scores stand for keys in another order."""

    def buffer(self, load: Load) -> str:
        """The name of the buffers of a load; loads of several parts may have one descriptor."""
        name = self.tiles[load].descriptor.name
        alike = [other for other, tile in self.tiles.items() if tile.descriptor.name == name]
        number = f"_{alike.index(load)}" if load is not alike[0] else ""
        return f"{name.removesuffix('_desc')}_tiles{number}"

    def place(self, load: Load, ring: Ring, event: str, group: str) -> str:
        """The buffer of one event, of one group where each has its own."""
        slot = ring.slot(event)
        if self.tiles[load].has_group_rows and self.groups > 1:
            slot = group if slot == "0" else f"{slot} * GROUPS + {group}"
        return f"{self.buffer(load)}.index({slot})"
