"""The Gluon functions of a product by multiply-adds: four warps multiply, one or four copy.

An operand that lies along its own axis is copied by the copy engine, in pieces of a few steps of
the sum. One that lies along the sum is scattered to such pieces by four warps, number by number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from typing_extensions import override

from tilesmith.backends.triton.emission.axes import start_name
from tilesmith.backends.triton.emission.emitter import Emitter, Rules
from tilesmith.backends.triton.emission.spelling import Needs, device_name
from tilesmith.backends.triton.multiply_adds import functions
from tilesmith.backends.triton.multiply_adds.plan import plan_product
from tilesmith.backends.triton.ops.accesses import (
    BlockAxis,
    Descriptor,
    find_block_access,
    find_descriptor,
)
from tilesmith.backends.triton.warp_roles.between import StepFunction, bound_axes
from tilesmith.backends.triton.warp_roles.computing import ComputeRole
from tilesmith.backends.triton.warp_roles.copies import Buffers, CopiedTile
from tilesmith.backends.triton.warp_roles.emitter import RoleEmitter
from tilesmith.backends.triton.warp_roles.layouts import WARPS_PER_GROUP, ProductLayout
from tilesmith.backends.triton.warp_roles.listed.turns import emit_start, emit_turns
from tilesmith.backends.triton.warp_roles.loading import emit_next, entering, is_scalar
from tilesmith.backends.triton.warp_roles.module import RoleModule
from tilesmith.backends.triton.warp_roles.plan import Product
from tilesmith.backends.triton.warp_roles.protocol import BARRIER_FUNCTIONS, LATE, Ring
from tilesmith.backends.triton.warp_roles.refusals import Refusal
from tilesmith.exc import InternalError, InvalidConfig
from tilesmith.ir.function import Function
from tilesmith.ir.ops.memory import Load, Store
from tilesmith.ir.types import Dim
from tilesmith.schedule.schedule import Schedule

LOADERS = 4
"""Warps that scatter; the copy engine needs one."""
REGISTERS = 128
"""Of a thread at the launch: two programs share a multiprocessor."""
OF_LOADERS = (24, 56, 72)
"""Of the warps that bring operands, by how many they scatter: fewer, and they spill, which changes
all that the assembler does."""
PART = "part"
IMPORTS = "from triton.experimental.gluon.language.nvidia.hopper import async_copy\n\n"


class PieceTile(CopiedTile):
    """A few steps of the sum, a row for each."""

    @property
    @override
    def layout(self) -> str:
        return f"gl.NVMMASharedLayout(0, {self.dtype.bits}, 2)"


@dataclass(frozen=True)
class Scattered:
    """Where an operand lies that threads bring: its own axis, and that of the sum."""

    own: BlockAxis
    summed: BlockAxis


@dataclass
class PieceBuffers(Buffers):
    """Both operands in pieces, as many to a slot as the step of the loop has."""

    scattered: dict[Load, Scattered] = field(default_factory=dict[Load, Scattered])

    @override
    def find_tiles(self, emitter: RoleEmitter) -> None:
        (product,) = self.plan.late
        for load in self.plan.ring:
            access = find_block_access(emitter, load.tensor, load.indices, load.result.tile.shape)
            axes = () if access is None else access.tiles
            if access is None or len(access.axes) != len(axes) or len(axes) != len(functions.LANES):
                raise _not_loaded(load)
            (summed,) = (axis for axis in axes if axis.dim == product.dot.lhs.tile.shape[-1])
            (own,) = (axis for axis in axes if axis is not summed)
            block = (functions.STEPS, emitter.schedule.physical(own.dim))
            if own.stride == 1:
                descriptor = find_descriptor(emitter, access)
            else:
                self.scattered[load] = Scattered(own, summed)
                name = f"{emitter.expr(load.tensor)}_desc"
                descriptor = Descriptor(name, (summed, own))
            if descriptor is None:
                raise _not_loaded(load)
            tile = PieceTile(
                load.result.tile.dtype, descriptor, access, block, Dim.of(emitter.rows)
            )
            self.tiles[load] = tile if load in self.scattered else _described(emitter, tile)

    @property
    def parts(self) -> int:
        """Pieces of a slot."""
        return self.schedule.symbols[self.plan.loop.blocks[0] or ""] // functions.STEPS

    @override
    def count(self, load: Load, ring: Ring) -> int:
        return super().count(load, ring) * self.parts


def _described(emitter: RoleEmitter, tile: PieceTile) -> PieceTile:
    """The same, with a descriptor of pieces."""
    described = emitter.spelling.needs.descriptions
    for item in [item for item, name in described.items() if name == tile.descriptor.name]:
        name = described.pop(item)
        name = described.setdefault(replace(item, block=tile.block, layout=tile.layout), name)
        tile = replace(tile, descriptor=replace(tile.descriptor, name=name))
    return tile


def _not_loaded(load: Load) -> InvalidConfig:
    return InvalidConfig(
        problem=f"tiles of {load.tensor.name} cannot be brought in pieces",
        loc=load.loc,
        expected="tiles that end where the tensor ends",
        fix='a config without structure="multiply_add_roles"',
    )


class _DirectStores:
    """Each thread stores what it has."""

    staged: ClassVar[dict[str, Any]] = {}
    is_pending = False

    def __init__(self, rules: Rules) -> None:
        self._rules = rules

    def emit(self, emitter: Emitter, op: Store) -> None:
        self._rules[Store](emitter, op)


class _AddingRole(ComputeRole):
    """Adds the products of a turn, piece by piece."""

    parts = 1

    @override
    def _emit_loop(self) -> None:
        shared, writer = self._shared, self._emitter.writer
        (product,), ring = self._plan.late, shared.rings[LATE]
        total = self._products.names[self._products.carried(product)]
        with writer.block("for turn in range(turns)"):
            writer.line(ring.wait_full("step + turn"))
            with writer.block(f"for {PART} in range({self.parts})"):
                pieces = [
                    place_of(shared.buffer(load), ring, self.parts) for load in operands_of(product)
                ]
                writer.origin(product.dot.loc)
                writer.statement(f"{total} = _multiply_add", [total, *pieces])
            self._products.release(LATE, "step + turn")
        writer.line(f"{total} = _to_store({total})")


def operands_of(product: Product) -> tuple[Load, Load]:
    """Both loads."""
    assert product.lhs is not None
    return product.lhs, product.rhs


def place_of(buffer: str, ring: Ring, parts: int) -> str:
    """The buffer of one piece of a turn."""
    return f"{buffer}.index({ring.slot('step + turn')} * {parts} + {PART})"


class AddingModule(RoleModule):
    """One group of four warps that multiplies, and the warps that bring its operands."""

    barriers = f"{BARRIER_FUNCTIONS}\n{functions.FUNCTIONS}"
    buffers: PieceBuffers

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        self.buffers = PieceBuffers(self.plan, self.schedule, self.groups)
        self._stores = _DirectStores(self.rules)
        (product,) = self.plan.late
        rows, columns = (self.schedule.physical(dim) for dim in product.dot.result.tile.shape)
        self.barriers = f"{functions.constants(rows, columns)}\n{self.barriers}"

    @override
    def _emit_loads(self, emitter: RoleEmitter) -> None:
        loop = self.plan.loop
        emitter.bind(loop.body.args[0], start_name(loop.blocks[0], loop.body.args[0]))
        with entering(emitter, self.plan, is_scalar):
            emit_turns(emitter, self.plan)
            with bound_axes(emitter, self.plan):
                self.buffers.find_tiles(emitter)
            number = len(self.buffers.scattered)
            self.registers = {self.groups: (REGISTERS, [OF_LOADERS[number]])}
            if number:
                # Each thread that scatters arrives, and the one that starts copies.
                is_copied = number < len(self.plan.ring)
                self.loaders, self.arrivals = LOADERS, 32 * LOADERS + is_copied
                self.barriers = f"{IMPORTS}{self.barriers}\n{functions.SCATTER_FUNCTIONS}"
            self._emit_turns(emitter)
            emit_next(emitter, self.shared)

    def _emit_turns(self, emitter: RoleEmitter) -> None:
        """Bring all pieces of each turn."""
        writer, (ring,), buffers = emitter.writer, self.shared.rings.values(), self.buffers
        copied = [load for load in ring.loads if load not in buffers.scattered]
        with writer.block("for turn in range(turns)"):
            emit_start(emitter, self.plan, "turn")
            writer.line(ring.wait_empty("step + turn"))
            writer.line(f"ready = {ring.full}.index({ring.slot('step + turn')})")
            total = buffers.parts * sum(buffers.tiles[load].num_bytes for load in copied)
            if copied:
                writer.line(f"mbarrier.expect(ready, {total})")
            with writer.block(f"for {PART} in range({buffers.parts})"):
                for load in ring.loads:
                    self._emit_piece(emitter, load, ring)
            if buffers.scattered:
                writer.line("async_copy.mbarrier_arrive(ready, increment_count=False)")

    def _emit_piece(self, emitter: RoleEmitter, load: Load, ring: Ring) -> None:
        writer, spelling = emitter.writer, emitter.spelling
        place = place_of(self.shared.buffer(load), ring, self.buffers.parts)
        tile, found = self.buffers.tiles[load], self.buffers.scattered.get(load)
        steps, own = tile.descriptor.axes
        first = f"{steps.start} + {PART} * {functions.STEPS}"
        writer.origin(load.loc)
        if found is None:
            arguments = [tile.descriptor.name, f"[{first}, {own.start}]", "ready", place]
            writer.statement("tma.async_copy_global_to_shared", arguments)
            return
        ends = [str(spelling.extent(axis.size)) for axis in (own, steps)]
        base, stride = str(emitter.expr(load.tensor)), str(spelling.extent(own.stride))
        kind = "gl.int64" if load.tensor.tensor.wide else "gl.int32"
        writer.statement("_scatter", [base, place, str(own.start), first, *ends, stride, kind])

    @override
    def _compute_role(self, emitter: RoleEmitter, steps: Sequence[StepFunction]) -> ComputeRole:
        made = _AddingRole(emitter, self.shared, None)
        made.parts = self.buffers.parts
        return made

    @override
    def _define(self, layout: ProductLayout) -> str:
        return functions.layout()


def emit_multiply_adds(
    function: Function, schedule: Schedule, rules: Rules, triton_version: tuple[int, int]
) -> tuple[str, Needs, dict[str, Any]]:
    """The device functions in Gluon, what they refer to, and how they are launched."""
    plan = plan_product(function)
    if isinstance(plan, Refusal):
        raise InternalError(loc=plan.loc, problem=f"no multiply-adds by roles: {plan.reason}")
    name = device_name(function)
    module = AddingModule(function, schedule, plan, rules, name, triton_version)
    text, needs = module.text, module.needs
    needs.parameters |= {parameter.value for parameter in function.parameters}
    return text, needs, {"num_warps": WARPS_PER_GROUP, "maxnreg": REGISTERS}
