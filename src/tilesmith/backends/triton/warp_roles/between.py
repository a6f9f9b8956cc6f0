"""What lies between products, as a function: the first turn and all others call it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tilesmith.backends.triton.emission.axes import start_name
from tilesmith.backends.triton.warp_roles.copies import Shared
from tilesmith.backends.triton.warp_roles.emitter import GROUP, RoleEmitter
from tilesmith.backends.triton.warp_roles.instructions import guard_slow_ops, is_paired, pack_name
from tilesmith.backends.triton.warp_roles.plan import Product, RolePlan
from tilesmith.backends.triton.warp_roles.segments import IS_MASKED, emit_selection, find_segments
from tilesmith.backends.triton.warp_roles.shortcuts.exponents import guard_bends, guard_powers
from tilesmith.backends.triton.warp_roles.shortcuts.key_order import ordered_pack_name
from tilesmith.backends.triton.warp_roles.shortcuts.scaled_pairs import guard_scaled_pairs
from tilesmith.dtypes import F8E4M3, F32
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.reduction import Reduce
from tilesmith.ir.types import Dim, Value

MOST_HELD_GROUPS, MOST_HELD_COLUMNS = 2, 64
PRODUCTS_PER_CYCLE = 16
"""Of the matrix units, for each lane of a group."""


@dataclass(frozen=True)
class StepPart:
    """What a function runs, and who reads its results."""

    ops: Sequence[Operation]
    sums: Sequence[Product]
    """Late products whose operands it prepares."""
    followers: Sequence[Operation]
    """Ops that run later in the turn."""
    is_masked_at_run_time: bool = False
    """Whether one loop has turns with masks and without."""
    is_handed_on: bool = False
    """Whether the next turn reads the operands of late products."""


class StepFunction:
    """What lies between products, as a function that the first turn and all others call."""

    def __init__(
        self, emitter: RoleEmitter, shared: Shared, name: str, common: Sequence[str], part: StepPart
    ) -> None:
        self.name = name
        self.common = list(common)
        """Parameters of the kernel, which keep their names in every function."""
        self._shared = shared
        self.emitter = emitter
        self._part = part
        self._inside = {value for op in part.ops for value in op.results}
        self.segments = find_segments(shared.plan, emitter, part.ops)
        for op in self.segments.selections:
            emitter.guarded[op] = emit_selection
            emitter.uses.inlined.difference_update(op.results)
        self.inputs = self._find_inputs()
        self.outputs = self._find_outputs()
        if part.is_handed_on:  # turns of two parts were measured without
            guard_slow_ops(emitter, part.ops)
            turn = shared.plan.loop.body.ops
            guard_scaled_pairs(emitter, part.ops, turn, shared.layouts)
            guard_bends(emitter, part.ops, turn, shared.layouts)
            guard_powers(emitter, part.ops, turn)
        for value in self.inputs:
            name = emitter.spelling.names.fresh(input_name(emitter, shared.plan, value))
            emitter.bind(value, name)

    def _leaves(self, values: Iterable[Value]) -> Iterator[Value]:
        """The values in variables that an expression is made of."""
        emitter = self.emitter
        for value in values:
            if value in emitter.spelling.parameter_names:
                continue
            if value in emitter.uses.inlined:
                yield from self._leaves(emitter.uses.defining[value].operand_values())
            else:
                yield value

    def _find_inputs(self) -> list[Value]:
        plan = self._shared.plan
        starts = [*plan.grid.body.args, plan.loop.body.args[0]]
        ends = [*plan.grid.ends, *plan.loop.ends]
        used = [value for op in self._part.ops for value in op.operand_values()]
        leaves = self._leaves([*starts, *ends, *used])
        return [value for value in dict.fromkeys(leaves) if value not in self._inside]

    def _find_outputs(self) -> list[Value]:
        """What the next turn, ops that follow and late products read."""
        plan, part = self._shared.plan, self._part
        operands = [p.dot.lhs for p in part.sums if p.lhs is None]
        read = list(self._leaves(v for op in part.followers for v in op.operand_values()))
        others = {*plan.loop.body.yielded, *read}
        # Two loops that hand a tile on take its pairs apart, one loop does not.
        is_split = part.is_handed_on and bool(self.segments) and not part.is_masked_at_run_time
        self.packed = {
            v
            for v in operands
            if v not in others
            and ((is_split and is_paired(v.tile.dtype)) or v.tile.dtype == F8E4M3)
        }
        wanted = [*plan.loop.body.yielded, *operands, *read]
        return [value for value in dict.fromkeys(wanted) if value in self._inside]

    @property
    def parameters(self) -> list[str]:
        """Of the function."""
        inputs = [str(self.emitter.expr(value)) for value in self.inputs]
        kind = "" if self._part.is_masked_at_run_time else ": gl.constexpr"
        flags = [f"{IS_MASKED}{kind}"] if self.segments else []
        return [f"{GROUP}: gl.constexpr", *flags, *self.common, *inputs]

    def emit(self) -> str:
        """The body of the function."""
        emitter, plan = self.emitter, self._shared.plan
        with emitter.writer.indented(), bound_axes(emitter, plan):
            for op in self._part.ops:
                emitter.op(op)
            emitter.writer.line(f"return {', '.join(map(self._result, self.outputs))}")
        return emitter.writer.text()

    def _result(self, value: Value) -> str:
        emitter, dtype, rounding = self.emitter, value.tile.dtype, None
        if value in self.packed and dtype == F8E4M3:
            # Lanes exchange what they hold while it is rounded.
            rounding = emitter.uses.defining[value]
            assert isinstance(rounding, Cast)
        source = value if rounding is None else rounding.x
        text = str(emitter.in_layout(source, self._shared.layouts.get(source)))
        if value not in self.packed:
            return text
        name = pack_name(dtype)
        if rounding is not None and self._shared.has_key_order:
            name = ordered_pack_name(emitter, self._part.ops)
        return f"{emitter.spelling.helper(name)}({text})"

    @property
    def held(self) -> list[Value]:
        """Sums over the tile of a turn, if the next wait is to find them computed.

        That pays where what lies between takes longer than the products beside it, and where
        narrow accumulators of two groups leave registers for both.
        """
        shared, physical = self._shared, self.emitter.schedule.physical
        widest = max(physical(p.dot.result.tile.shape[-1]) for p in shared.plan.late)
        if shared.groups > MOST_HELD_GROUPS or widest > MOST_HELD_COLUMNS:
            return []
        if not self._outlasts_products():
            return []
        rows = [v for v in self.outputs if v.tile.rank == 1 and v.tile.dtype == F32]
        return [value for value in rows if self._has_sum(value)]

    def _outlasts_products(self) -> bool:
        """Whether a turn's products are done before what lies between, all of it on one tile."""
        plan, physical = self._shared.plan, self.emitter.schedule.physical
        cycles = sum(self._cycles(op) for op in plan.between)
        sides = [p.dot.rhs.tile for p in plan.products]
        products = sum(
            physical(tile.shape[0]) * physical(tile.shape[1]) * tile.dtype.itemsize // 2
            for tile in sides
        )
        return cycles * physical(Dim.of(plan.loop.blocks[0])) * PRODUCTS_PER_CYCLE > products

    def _cycles(self, op: Operation) -> int:
        """Of a warp for one number of each lane, on the unit that is slowest."""
        result = op.results[0].tile
        if isinstance(op, Reduce) and op.x.tile.rank > 1:
            return 2 if op.kind == "max" else 1
        if result.rank < 2 or not result.dtype.is_float or op in self.segments.selections:
            return 0
        if isinstance(op, Cast):
            return 1 if result.dtype.bits < F32.bits else 2
        if not isinstance(op, Elementwise):
            return 0
        return 8 if op.function.is_transcendental else 1

    def _has_sum(self, value: Value) -> bool:
        op = self.emitter.uses.defining.get(value)
        if op is None or value not in self._inside:
            return False
        if isinstance(op, Reduce):
            return op.kind == "sum"
        return any(self._has_sum(operand) for operand in op.operand_values())


def input_name(emitter: RoleEmitter, plan: RolePlan, value: Value) -> str:
    """What a value from outside is called inside."""
    starts = {
        **dict(zip(plan.grid.body.args, plan.grid.blocks)),
        plan.loop.body.args[0]: plan.loop.blocks[0],
    }
    if value in starts:
        return start_name(starts[value], value)
    op = emitter.uses.defining.get(value)
    if isinstance(op, Cast) and not value.name and not value.tile.rank:
        # A hint would be after what it was made of, which is not known here.
        return f"{op.x.name or 'cast'}_{op.dtype}"
    return emitter.name_hint(value)


@contextmanager
def bound_axes(emitter: RoleEmitter, plan: RolePlan) -> Iterator[None]:
    """The axes of the grid and of the loop, where their starts are variables."""
    axes = {
        block: emitter.axis(op, position, emitter.expr(op.body.args[position]))
        for op in (plan.grid, plan.loop)
        for position, block in enumerate(op.blocks)
        if block
    }
    with emitter.scope.binding(axes):
        yield
