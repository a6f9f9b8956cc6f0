"""The lines of each role: one warp that copies, groups that compute, and a step between products.

Emission follows the plan: what may be in flight at once was decided there, waits and arrivals come
from the rings of the protocol.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tilesmith.backends.triton.emission.axes import start_name
from tilesmith.backends.triton.emission.spelling import Expr, triton_dtype
from tilesmith.backends.triton.warp_roles.copies import CopiedTile
from tilesmith.backends.triton.warp_roles.emitter import GROUP, ROWS, RoleEmitter
from tilesmith.backends.triton.warp_roles.layouts import Layout, ProductLayout
from tilesmith.backends.triton.warp_roles.plan import Product, RolePlan
from tilesmith.backends.triton.warp_roles.protocol import EARLY, KEPT, LATE, Ring
from tilesmith.backends.triton.warp_roles.segments import (
    IS_MASKED,
    emit_bounds,
    emit_selection,
    find_segments,
)
from tilesmith.ir.ops.indexing import Mask
from tilesmith.ir.ops.memory import Load
from tilesmith.ir.ops.shape import Permute
from tilesmith.ir.types import Value


@dataclass(frozen=True)
class Shared:
    """What all roles know: the plan, its rings, the tiles that are copied, layouts."""

    plan: RolePlan
    rings: Mapping[str, Ring]
    tiles: Mapping[Load, CopiedTile]
    layouts: Mapping[Value, Layout]
    groups: int

    def buffer(self, load: Load) -> str:
        """The name of the buffers of a load."""
        return f"{self.tiles[load].descriptor.name.removesuffix('_desc')}_tiles"

    def place(self, load: Load, ring: Ring, event: str, group: str) -> str:
        """The buffer of one event, of one group where each has its own."""
        slot = ring.slot(event)
        if self.tiles[load].has_group_rows and self.groups > 1:
            slot = group if slot == "0" else f"{slot} * GROUPS + {group}"
        return f"{self.buffer(load)}.index({slot})"


def emit_scalars(emitter: RoleEmitter, plan: RolePlan) -> None:
    """Numbers that positions of tiles and the ends of the loop depend on."""
    for op in plan.before:
        if op.results and not any(value.tile.rank for value in op.results):
            emitter.op(op)


def emit_turns(emitter: RoleEmitter, plan: RolePlan) -> None:
    """How often the loop runs."""
    begin, end = emitter.expr(plan.loop.begins[0]), emitter.expr(plan.loop.ends[0])
    length = end - begin
    block = emitter.spelling.block_name(plan.loop.blocks[0])
    size = emitter.schedule.symbols[plan.loop.blocks[0]]
    if isinstance(length.constant, int):
        emitter.writer.line(f"turns = {max(0, -(-length.constant // size))}")
    else:
        emitter.writer.line(f"turns = gl.cdiv(gl.maximum({length}, 0), {block})")


def loop_start(emitter: RoleEmitter, plan: RolePlan, turn: str) -> str:
    """The first index of a turn's tile."""
    begin = emitter.expr(plan.loop.begins[0])
    block = emitter.spelling.block_name(plan.loop.blocks[0])
    return str(begin + Expr(f"{turn} * {block}"))


def emit_copies(emitter: RoleEmitter, shared: Shared) -> None:
    """The role that loads: tiles of each ring, as slots become free."""
    plan, writer = shared.plan, emitter.writer
    kept = shared.rings.get(KEPT)
    if kept is not None:
        _emit_copy(emitter, shared, kept, "piece")
    with writer.block("for turn in range(turns)"):
        start = start_name(plan.loop.blocks[0], plan.loop.body.args[0])
        writer.line(f"{start} = {loop_start(emitter, plan, 'turn')}")
        for kind in (EARLY, LATE):
            if kind in shared.rings:
                _emit_copy(emitter, shared, shared.rings[kind], "step + turn")
    _emit_next(emitter, shared)


def _emit_copy(emitter: RoleEmitter, shared: Shared, ring: Ring, event: str) -> None:
    """All tiles of one event of a ring: one barrier counts their bytes."""
    writer = emitter.writer
    writer.line(ring.wait_empty(event))
    copies = [
        (tile, group)
        for tile in (shared.tiles[load] for load in ring.loads)
        for group in range(shared.groups if tile.has_group_rows else 1)
    ]
    total = sum(tile.num_bytes for tile, _ in copies)
    writer.line(f"ready = {ring.full}.index({ring.slot(event)})")
    writer.line(f"mbarrier.expect(ready, {total})")
    for load in ring.loads:
        tile = shared.tiles[load]
        writer.origin(load.loc)
        for group in range(shared.groups if tile.has_group_rows else 1):
            place = shared.place(load, ring, event, str(group))
            arguments = [tile.descriptor.name, tile.position(str(group)), "ready", place]
            writer.statement("tma.async_copy_global_to_shared", arguments)


def _emit_next(emitter: RoleEmitter, shared: Shared) -> None:
    """Count the events of this tile, for the one after it."""
    emitter.writer.line("step += turns")
    if KEPT in shared.rings:
        emitter.writer.line("piece += 1")


class StepFunction:
    """What lies between products, as a function that the first turn and all others call."""

    def __init__(
        self, emitter: RoleEmitter, shared: Shared, name: str, common: Sequence[str]
    ) -> None:
        self.name = name
        self.common = list(common)
        """Parameters of the kernel, which keep their names in every function."""
        self._shared = shared
        self._emitter = emitter
        plan = shared.plan
        self._inside = {value for op in plan.between for value in op.results}
        self.segments = find_segments(plan, emitter)
        for op in self.segments.selections:
            emitter.guarded[op] = emit_selection
            emitter.uses.inlined.difference_update(op.results)
        self.inputs = self._find_inputs()
        self.outputs = self._find_outputs()
        for value in self.inputs:
            name = emitter.spelling.names.fresh(input_name(emitter, shared.plan, value))
            emitter.bind(value, name)

    def _leaves(self, values: Iterable[Value]) -> Iterator[Value]:
        """The values in variables that an expression is made of."""
        emitter = self._emitter
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
        used = [value for op in plan.between for value in op.operand_values()]
        leaves = self._leaves([*starts, *ends, *used])
        return [value for value in dict.fromkeys(leaves) if value not in self._inside]

    def _find_outputs(self) -> list[Value]:
        """What the next turn, rescaling and late products read."""
        plan = self._shared.plan
        operands = [p.dot.lhs for p in plan.late if p.lhs is None]
        rescaled = self._leaves(v for op in plan.rescaling for v in op.operand_values())
        wanted = [*plan.loop.body.yielded, *operands, *rescaled]
        return [value for value in dict.fromkeys(wanted) if value in self._inside]

    @property
    def parameters(self) -> list[str]:
        """Of the function."""
        inputs = [str(self._emitter.expr(value)) for value in self.inputs]
        flags = [f"{IS_MASKED}: gl.constexpr"] if self.segments else []
        return [f"{GROUP}: gl.constexpr", *flags, *self.common, *inputs]

    def emit(self) -> str:
        """The body of the function."""
        emitter, plan = self._emitter, self._shared.plan
        with emitter.writer.indented(), bound_axes(emitter, plan):
            for op in plan.between:
                emitter.op(op)
            results = [emitter.in_layout(v, self._shared.layouts.get(v)) for v in self.outputs]
            emitter.writer.line(f"return {', '.join(map(str, results))}")
        return emitter.writer.text()


def input_name(emitter: RoleEmitter, plan: RolePlan, value: Value) -> str:
    """What a value from outside is called inside."""
    starts = {
        **dict(zip(plan.grid.body.args, plan.grid.blocks)),
        plan.loop.body.args[0]: plan.loop.blocks[0],
    }
    if value in starts:
        return start_name(starts[value], value)
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


class ComputeRole:
    """What a group of four warps runs for one tile."""

    def __init__(self, emitter: RoleEmitter, shared: Shared, step: StepFunction | None) -> None:
        self._emitter = emitter
        self._shared = shared
        self._plan = shared.plan
        self._step = step
        self._line = emitter.writer.line
        self._late = [p.dot.result for p in self._plan.late]
        self._names: dict[Value, str] = {}
        """Variables of what the loop carries, by the region's argument."""
        if step is not None:
            # They come in variables, whatever the step makes them of.
            emitter.uses.inlined.difference_update(step.outputs)

    def emit(self) -> None:
        """Wait for kept tiles, run the loop, then what follows it."""
        emitter, plan, shared = self._emitter, self._plan, self._shared
        for op in plan.before:
            emitter.op(op)
        emit_turns(emitter, plan)
        self._start_carried()
        if KEPT in shared.rings:
            self._line(shared.rings[KEPT].wait_full("piece"))
        emitter.writer.origin(plan.loop.loc)
        if self._step is None:
            self._emit_sums()
        else:
            self._emit_rotated(self._step)
        for result, arg in zip(plan.loop.results, plan.loop.carried):
            emitter.bind(result, self._names[arg])
        for op in plan.after:
            emitter.op(op)
        if KEPT in shared.rings:
            self._line(shared.rings[KEPT].release("piece"))
        _emit_next(emitter, shared)

    def _start_carried(self) -> None:
        emitter, loop = self._emitter, self._plan.loop
        for arg, init in zip(loop.carried, loop.init):
            name = emitter.spelling.names.fresh(arg.name or init.name or "carried")
            self._line(f"{name} = {self._first(init, self._shared.layouts.get(arg))}")
            emitter.bind(arg, name)
            self._names[arg] = name

    def _first(self, value: Value, layout: Layout | None) -> str:
        """What a carried value is before the first turn, where the loop keeps it."""
        emitter = self._emitter
        expr = emitter.expr(value)
        if layout is None:
            return str(emitter.exact(value))
        if expr.is_untyped:
            shape, dtype = emitter.spelling.shape(value.tile.shape), triton_dtype(value.tile.dtype)
            return f"gl.full({shape}, {expr}, {dtype}, {layout})"
        return f"gl.set_auto_layout({emitter.exact(value)}, {layout})"

    def _operands(self, product: Product, event: str) -> tuple[str, str]:
        """Both operands of a product, as the matrix units take them."""
        shared = self._shared
        right = self._view(product.rhs, product.dot.rhs, event)
        if product.lhs is not None:
            return self._view(product.lhs, product.dot.lhs, event), right
        layout = shared.layouts[product.dot.result]
        value = self._emitter.in_layout(product.dot.lhs, None)
        name = self._operand_name(product)
        self._line(f"{name} = gl.convert_layout({value}, gl.DotOperandLayout(0, {layout}, 2))")
        return name, right

    def _operand_name(self, product: Product) -> str:
        """The variable of an operand in registers."""
        return f"{self._names[self._carried(product)]}_operand"

    def _view(self, load: Load, operand: Value, event: str) -> str:
        """A copied tile as a product reads it, transposed where the source says so."""
        shared = self._shared
        ring = next(ring for ring in shared.rings.values() if load in ring.loads)
        place = shared.place(load, ring, "piece" if ring.kind == KEPT else event, GROUP)
        is_turned = False
        while operand is not load.result:
            op = self._emitter.uses.defining[operand]
            assert isinstance(op, (Mask, Permute))
            is_turned ^= isinstance(op, Permute) and op.order != (0, 1)
            operand = op.x
        return shared.tiles[load].view(place, is_turned=is_turned)

    def _start_early(self, event: str, names: Sequence[str]) -> None:
        """Start the products of a turn that need loaded tiles only."""
        rings, writer = self._shared.rings, self._emitter.writer
        if EARLY in rings:
            self._line(rings[EARLY].wait_full(event))
        for product, name in zip(self._plan.early, names):
            lhs, rhs = self._operands(product, event)
            layout = self._shared.layouts[product.dot.result]
            assert isinstance(layout, ProductLayout)
            empty = f"gl.zeros([{ROWS}, {layout.columns}], gl.float32, {layout})"
            writer.origin(product.dot.loc)
            arguments = [lhs, rhs, empty, "use_acc=False", "is_async=True"]
            writer.statement(f"{name} = warpgroup_mma", arguments)

    def _start_late(self, event: str) -> list[str]:
        """Start the sums of a turn; their names while they are in flight."""
        rings, writer = self._shared.rings, self._emitter.writer
        if LATE in rings:
            self._line(rings[LATE].wait_full(event))
        names: list[str] = []
        for product in self._plan.late:
            carried = self._names[self._carried(product)]
            lhs, rhs = self._operands(product, event)
            writer.origin(product.dot.loc)
            name = f"next_{carried}"
            writer.statement(f"{name} = warpgroup_mma", [lhs, rhs, carried, "is_async=True"])
            names.append(name)
        return names

    def _carried(self, product: Product) -> Value:
        loop = self._plan.loop
        return loop.carried[loop.body.yielded.index(product.dot.result)]

    def _wait_products(self, names: Sequence[str], in_flight: Sequence[str], left: int) -> None:
        listed = f"[{', '.join(in_flight)}]"
        self._line(f"{', '.join(names)} = warpgroup_mma_wait({left}, {listed})")

    def _wait_late(self, in_flight: Sequence[str], left: int = 0) -> None:
        """Until sums are there; their operands in registers must not be reused before."""
        sums = [self._names[self._carried(product)] for product in self._plan.late]
        held = [self._operand_name(p) for p in self._plan.late if p.lhs is None]
        self._wait_products([*sums, *held], [*in_flight, *held], left)

    def _release(self, kind: str, event: str) -> None:
        if kind in self._shared.rings:
            self._line(self._shared.rings[kind].release(event))

    def _emit_rotated(self, step: StepFunction) -> None:
        """Early products of a turn and late ones of the turn before are in flight together."""
        emitter, plan, writer = self._emitter, self._plan, self._emitter.writer
        early = [emitter.spelling.names.fresh(emitter.name_hint(p.dot.result)) for p in plan.early]
        flying = [emitter.spelling.names.fresh(f"next_{name}") for name in early]
        if step.segments:
            emit_bounds(emitter, plan, step.segments)
        with writer.block("if turns > 0"):
            self._start_early("step", flying)
            self._wait_products(early, flying, 0)
            self._release(EARLY, "step")
            self._call_step(step, early, "0", "True")
            self._rescale()
            with self._other_turns(step):
                self._start_early("step + turn", flying)
                sums = self._start_late("step + turn - 1")
                self._wait_products(early, flying, len(sums))
                self._release(EARLY, "step + turn")
                self._call_step(step, early, "turn", "part != 1")
                self._wait_late(sums)
                self._release(LATE, "step + turn - 1")
                self._rescale()
            self._wait_late(self._start_late("step + turns - 1"))
            self._release(LATE, "step + turns - 1")

    @contextmanager
    def _other_turns(self, step: StepFunction) -> Iterator[None]:
        """All turns but the first, those without masks in a loop of their own."""
        writer = self._emitter.writer
        if not step.segments:
            with writer.block("for turn in range(1, turns)"):
                yield
            return
        first = 0 if step.segments.has_lower_bound(self._plan) else 1
        with writer.block(f"for part in gl.static_range({first}, 3)"):
            self._line("begin = 1 if part == 0 else full_from if part == 1 else full_to")
            self._line("end = full_from if part == 0 else full_to if part == 1 else turns")
            with writer.block("for turn in range(begin, end)"):
                yield

    def _call_step(
        self, step: StepFunction, early: Sequence[str], turn: str, is_masked: str
    ) -> None:
        """Call the function of what lies between, and name its results."""
        emitter, plan = self._emitter, self._plan
        loop = plan.loop
        start = start_name(loop.blocks[0], loop.body.args[0])
        self._line(f"{start} = {loop_start(emitter, plan, turn)}")
        emitter.bind(loop.body.args[0], start)
        for product, name in zip(plan.early, early):
            emitter.bind(product.dot.result, name)
        given = [str(emitter.expr(value)) for value in step.inputs]
        names = [self._output_name(value) for value in step.outputs]
        flags = [GROUP, is_masked] if step.segments else [GROUP]
        arguments = [*flags, *step.common, *given]
        emitter.writer.statement(f"{', '.join(names)} = {step.name}", arguments)
        for value, name in zip(step.outputs, names):
            emitter.bind(value, name)

    def _output_name(self, value: Value) -> str:
        """The carried variable that a result goes to, or one of its own."""
        emitter, loop = self._emitter, self._plan.loop
        if value in loop.body.yielded:
            return self._names[loop.carried[loop.body.yielded.index(value)]]
        if emitter.variables.find_name(value) is None:
            emitter.bind(value, emitter.spelling.names.fresh(emitter.name_hint(value)))
        return emitter.variables.find_name(value) or ""

    def _rescale(self) -> None:
        """What a turn does to accumulators before it adds to them."""
        emitter, plan = self._emitter, self._plan
        for op in plan.rescaling:
            emitter.op(op)
        for product in plan.late:
            acc, name = product.dot.acc, self._names[self._carried(product)]
            assert acc is not None
            text = str(emitter.in_layout(acc, self._shared.layouts[product.dot.result]))
            if text != name:
                self._line(f"{name} = {text}")

    def _emit_sums(self) -> None:
        """Without early products: one product in flight while the next tiles are waited for."""
        plan, writer, emitter = self._plan, self._emitter.writer, self._emitter
        late = [self._names[self._carried(product)] for product in plan.late]
        loop = plan.loop
        start = start_name(loop.blocks[0], loop.body.args[0])
        with writer.block("for turn in range(turns)"):
            self._line(f"{start} = {loop_start(emitter, plan, 'turn')}")
            emitter.bind(loop.body.args[0], start)
            with bound_axes(emitter, plan):
                for op in plan.between:
                    emitter.op(op)
                self._rescale()
            sums = self._start_late("step + turn")
            self._wait_late(sums, 0 if plan.rescaling or plan.between else len(sums))
            with writer.block("if turn > 0"):
                self._release(LATE, "step + turn - 1")
            self._assign_carried()
        self._wait_products(late, late, 0)
        with writer.block("if turns > 0"):
            self._release(LATE, "step + turns - 1")

    def _assign_carried(self) -> None:
        """What else the loop carries, all at once."""
        emitter, loop = self._emitter, self._plan.loop
        pairs = [
            (self._names[arg], str(emitter.in_layout(value, self._shared.layouts.get(arg))))
            for arg, value in zip(loop.carried, loop.body.yielded)
            if value not in self._late and value is not arg
        ]
        if pairs:
            names, values = zip(*pairs)
            self._line(f"{', '.join(names)} = {', '.join(values)}")
