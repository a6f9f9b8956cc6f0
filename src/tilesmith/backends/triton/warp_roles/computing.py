"""The role that computes: groups of four warps, each with its rows of a tile.

Emission follows the plan: what may be in flight at once was decided there, waits and arrivals come
from the rings of the protocol.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

from tilesmith.backends.triton.warp_roles.between import StepFunction, bound_axes
from tilesmith.backends.triton.warp_roles.clearing import emit_clearing
from tilesmith.backends.triton.warp_roles.copies import Shared
from tilesmith.backends.triton.warp_roles.edges.operands import first_value, hold_operands
from tilesmith.backends.triton.warp_roles.edges.quotients import guard_quotients
from tilesmith.backends.triton.warp_roles.emitter import GROUP, ROWS, RoleEmitter
from tilesmith.backends.triton.warp_roles.instructions import unpack_name
from tilesmith.backends.triton.warp_roles.layouts import ProductLayout
from tilesmith.backends.triton.warp_roles.listed.masks import IS_CUT, emit_listed
from tilesmith.backends.triton.warp_roles.listed.turns import emit_start, emit_turns
from tilesmith.backends.triton.warp_roles.loading import emit_next, entering
from tilesmith.backends.triton.warp_roles.plan import Product
from tilesmith.backends.triton.warp_roles.protocol import EARLY, KEPT, LATE
from tilesmith.backends.triton.warp_roles.segments import Segments, emit_bounds
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.indexing import Mask
from tilesmith.ir.ops.memory import Load
from tilesmith.ir.ops.shape import Permute
from tilesmith.ir.types import Value

LAST_TURN = "turn == turns - 1"


class ProductEmission:
    """Starts products, waits for them, reads vectors and hands tiles back."""

    def __init__(
        self, emitter: RoleEmitter, shared: Shared, packed: Collection[Value] = ()
    ) -> None:
        self._emitter = emitter
        self._shared = shared
        self.packed = packed
        """Operands that come as pairs of numbers."""
        self._plan = shared.plan
        self._line = emitter.writer.line
        self.names: dict[Value, str] = {}
        """Variables of what the loop carries, by the region's argument."""
        self.held: dict[Product, str] = {}
        """Kept operands that are in registers."""

    def _operands(self, product: Product, event: str) -> tuple[str, str]:
        """Both operands of a product, as the matrix units take them."""
        shared = self._shared
        right = self.view(product.rhs, product.dot.rhs, event)
        if product.lhs is not None:
            return self.held.get(product) or self.view(product.lhs, product.dot.lhs, event), right
        operand = product.dot.lhs
        width = 4 // operand.tile.dtype.itemsize
        layout = f"gl.DotOperandLayout(0, {shared.layouts[product.dot.result]}, {width})"
        value = self._emitter.in_layout(operand, None)
        name = self._operand_name(product)
        if operand in self.packed:
            unpack = self._emitter.spelling.helper(unpack_name(operand.tile.dtype))
            if operand.tile.dtype.itemsize == 1:
                held = self._held_name(product)
                self._line(f"{held} = {value}")
                value = held
            self._line(f"{name} = {unpack}({value}, {layout})")
        else:
            self._line(f"{name} = gl.convert_layout({value}, {layout})")
        return name, right

    def _operand_name(self, product: Product) -> str:
        """The variable of an operand in registers."""
        return f"{self.names[self.carried(product)]}_operand"

    def _held_name(self, product: Product) -> str:
        """The same until the product is done; Triton holds no 8-bit tiles, but packed ones."""
        name = self._operand_name(product)
        return name if product.dot.lhs.tile.dtype.itemsize > 1 else f"{name}_packed"

    def view(self, load: Load, operand: Value, event: str) -> str:
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

    def _wait_tiles(self, products: Sequence[Product], event: str, kind: str) -> None:
        """Until the tiles that products read in one turn are there, and all of one ring."""
        loads = {load for product in products for load in (product.lhs, product.rhs)}
        for ring in self._shared.rings.values():
            if ring.kind == kind or (ring.kind != KEPT and loads & set(ring.loads)):
                self._line(ring.wait_full(event))

    def _clear(self, products: Sequence[Product], event: str, conditions: Sequence[str]) -> None:
        """Zeros past the end of the loop, in what products read of a turn that may be the last."""
        loads = [load for product in products for load in (product.lhs, product.rhs)]
        is_partial = self._emitter.facts.axes[self._plan.loop][0]
        known = self._plan.cleared if is_partial else frozenset[Load]()
        cleared = [load for load in dict.fromkeys(loads) if load in known]
        places = {load: self.view(load, load.result, event) for load in cleared}
        emit_clearing(self._emitter, self._shared, places, conditions)

    def start_early(self, event: str, names: Sequence[str], last: Sequence[str]) -> None:
        """Start products that need loaded tiles only; ``last``: what holds in the last turn."""
        self._wait_tiles(self._plan.early, event, EARLY)
        self._clear(self._plan.early, event, last)
        for product, name in zip(self._plan.early, names):
            self.start(product, event, name)

    def start(self, product: Product, event: str, name: str) -> None:
        """Start a product of loaded tiles, which are there."""
        writer = self._emitter.writer
        lhs, rhs = self._operands(product, event)
        layout = self._shared.layouts[product.dot.result]
        assert isinstance(layout, ProductLayout)
        empty = f"gl.zeros([{ROWS}, {layout.columns}], gl.float32, {layout})"
        writer.origin(product.dot.loc)
        arguments = [lhs, rhs, empty, "use_acc=False", "is_async=True"]
        writer.statement(f"{name} = warpgroup_mma", arguments)

    def start_late(self, event: str, last: Sequence[str] | None = None) -> list[str]:
        """Start the sums of a turn; their names while they are in flight.

        ``last``: what holds in the last turn; None: this is not the last.
        """
        self._wait_tiles(self._plan.late, event, LATE)
        if last is not None:
            self._clear(self._plan.late, event, last)
        return [self.start_sum(product, event) for product in self._plan.late]

    def start_sum(self, product: Product, event: str) -> str:
        """Start a sum, whose tiles are there; its name while it is in flight."""
        writer = self._emitter.writer
        carried = self.names[self.carried(product)]
        lhs, rhs = self._operands(product, event)
        writer.origin(product.dot.loc)
        name = f"next_{carried}"
        writer.statement(f"{name} = warpgroup_mma", [lhs, rhs, carried, "is_async=True"])
        return name

    def carried(self, product: Product) -> Value:
        """What a sum adds to, as the loop carries it."""
        loop = self._plan.loop
        return loop.carried[loop.body.yielded.index(product.dot.result)]

    def wait_products(self, names: Sequence[str], in_flight: Sequence[str], left: int) -> None:
        """Until all but so many products are done."""
        listed = f"[{', '.join(in_flight)}]"
        self._line(f"{', '.join(names)} = warpgroup_mma_wait({left}, {listed})")

    def wait_late(self, in_flight: Sequence[str], left: int = 0) -> None:
        """Until sums are there; their operands in registers must not be reused before."""
        sums, held = self.late_names(self._plan.late)
        self.wait_products([*sums, *held], [*in_flight, *held], left)

    def late_names(self, products: Sequence[Product]) -> tuple[list[str], list[str]]:
        """Variables of sums, and of their operands in registers."""
        sums = [self.names[self.carried(product)] for product in products]
        return sums, [self._held_name(p) for p in products if p.lhs is None]

    def release(self, kind: str, event: str) -> None:
        """Hand the tiles of an event back."""
        if kind in self._shared.rings:
            self._line(self._shared.rings[kind].release(event))

    def read_vectors(self, ops: Sequence[Operation], kind: str, event: str = "step + turn") -> None:
        """Vectors in shared memory that ops read, as they are used."""
        emitter, shared = self._emitter, self._shared
        ring = shared.rings.get(kind)
        read = {value for op in ops for value in op.operand_values()}
        for load in ring.loads if ring is not None else ():
            if load.result not in read or load in self._plan.ring:
                continue
            assert ring is not None
            name = emitter.variables.find_name(load.result)
            if name is None:
                name = emitter.spelling.names.fresh(emitter.name_hint(load.result))
            tile = shared.tiles[load].view(shared.place(load, ring, event, GROUP))
            emitter.writer.origin(load.loc)
            self._line(f"{name} = {tile}.load({shared.layouts[load.result]})")
            emitter.bind(load.result, name)


class ComputeRole:
    """What a group of four warps runs for one tile."""

    def __init__(self, emitter: RoleEmitter, shared: Shared, step: StepFunction | None) -> None:
        self._emitter = emitter
        self._shared = shared
        self._plan = shared.plan
        self._step = step
        self._segments = Segments() if step is None else step.segments
        self._line = emitter.writer.line
        self._late = [p.dot.result for p in self._plan.late]
        self._products = ProductEmission(emitter, shared, () if step is None else step.packed)
        guard_quotients(emitter, shared.plan)
        if step is not None:
            # They come in variables, whatever the step makes them of.
            emitter.uses.inlined.difference_update(step.outputs)

    def emit(self) -> None:
        """Wait for kept tiles, run the loop, then what follows it."""
        with entering(self._emitter, self._plan, lambda _: True):
            self._emit_tile()

    def _emit_tile(self) -> None:
        emitter, plan, shared = self._emitter, self._plan, self._shared
        emit_turns(emitter, plan)
        self._start_carried()
        if KEPT in shared.rings:
            self._line(shared.rings[KEPT].wait_full("piece"))
        view, is_masked = self._products.view, bool(self._segments)
        self._products.held = hold_operands(emitter, shared, view, is_masked=is_masked)
        emitter.writer.origin(plan.loop.loc)
        self._emit_loop()
        for result, arg in zip(plan.loop.results, plan.loop.carried):
            emitter.bind(result, self._products.names[arg])
        for op in plan.after:
            emitter.op(op)
        self._products.release(KEPT, "piece")
        emit_next(emitter, shared)

    def _emit_loop(self) -> None:
        if self._step is None:
            self._emit_sums()
        else:
            self._emit_rotated(self._step)

    def _start_carried(self) -> None:
        emitter, loop = self._emitter, self._plan.loop
        for arg, init in zip(loop.carried, loop.init):
            name = emitter.spelling.names.fresh(arg.name or init.name or "carried")
            self._line(f"{name} = {first_value(emitter, init, self._shared.layouts.get(arg))}")
            emitter.bind(arg, name)
            self._products.names[arg] = name

    def _emit_rotated(self, step: StepFunction) -> None:
        """Early products of a turn and late ones of the turn before are in flight together."""
        emitter, plan, writer = self._emitter, self._plan, self._emitter.writer
        early = [emitter.spelling.names.fresh(emitter.name_hint(p.dot.result)) for p in plan.early]
        flying = [emitter.spelling.names.fresh(f"next_{name}") for name in early]
        masked = "part != 1" if plan.listing is None else IS_CUT
        if step.segments and plan.listing is None:
            emit_bounds(emitter, plan, step.segments)
        with writer.block("if turns > 0"):
            emit_listed(emitter, plan, step.segments, "0")
            self._products.start_early("step", flying, ["turns == 1"])
            self._products.wait_products(early, flying, 0)
            self._products.read_vectors(plan.between, EARLY, "step")
            self._products.release(EARLY, "step")
            self._emit_first_step(step, early)
            self._rescale()
            with self._other_turns(step):
                emit_listed(emitter, plan, step.segments, "turn")
                # Turns without masks are whole.
                last = ["part != 1", LAST_TURN] if step.segments else [LAST_TURN]
                self._products.start_early("step + turn", flying, last)
                sums = self._products.start_late("step + turn - 1")
                self._products.wait_products(early, flying, len(sums))
                self._products.read_vectors(plan.between, EARLY)
                self._products.release(EARLY, "step + turn")
                self._start_step(early, "turn")
                self._call_step(step, masked)
                for name in map(self._output_name, step.held):
                    self._line(f"{name} = {emitter.spelling.helper('_hold')}({name})")
                self._products.wait_late(sums)
                self._products.release(LATE, "step + turn - 1")
                self._rescale()
            self._products.wait_late(self._products.start_late("step + turns - 1", ()))
            self._products.release(LATE, "step + turns - 1")

    def _emit_first_step(self, step: StepFunction, early: Sequence[str]) -> None:
        """The step of the first turn, with masks only where it needs them."""
        # Triton 3.6 ends at an assertion where a tile is loaded inside of a branch.
        is_loading = any(isinstance(op, Load) for op in self._plan.between)
        self._start_step(early, "0")
        if not step.segments or is_loading or self._plan.listing is not None:
            self._call_step(step, "True" if self._plan.listing is None else IS_CUT)
            return
        is_full = "full_to > 0"
        if step.segments.has_lower_bound(self._plan):
            is_full = f"(full_from == 0) & ({is_full})"
        for condition, is_masked in ((f"if {is_full}", "False"), ("else", "True")):
            with self._emitter.writer.block(condition):
                self._call_step(step, is_masked)

    @contextmanager
    def _other_turns(self, step: StepFunction) -> Iterator[None]:
        """All turns but the first, those without masks in a loop of their own."""
        writer = self._emitter.writer
        if not step.segments or self._plan.listing is not None:
            with writer.block("for turn in range(1, turns)"):
                yield
            return
        first = 0 if step.segments.has_lower_bound(self._plan) else 1
        with writer.block(f"for part in gl.static_range({first}, 3)"):
            self._line("begin = 0 if part == 0 else full_from if part == 1 else full_to")
            self._line("end = full_from if part == 0 else full_to if part == 1 else turns")
            with writer.block("for turn in range(gl.maximum(begin, 1), end)"):
                yield

    def _start_step(self, early: Sequence[str], turn: str) -> None:
        """What a step is called with: the first index of a turn, and results of early products."""
        if self._plan.listing is None or not self._plan.early:
            emit_start(self._emitter, self._plan, turn)
        for product, name in zip(self._plan.early, early):
            self._emitter.bind(product.dot.result, name)

    def _call_step(self, step: StepFunction, is_masked: str) -> None:
        """Call the function of what lies between, and name its results."""
        emitter = self._emitter
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
            return self._products.names[loop.carried[loop.body.yielded.index(value)]]
        if emitter.variables.find_name(value) is None:
            is_packed = value in self._products.packed
            hint = "packed" if is_packed else emitter.name_hint(value)
            emitter.bind(value, emitter.spelling.names.fresh(hint))
        return emitter.variables.find_name(value) or ""

    def _rescale(self) -> None:
        """What a turn does to accumulators before it adds to them."""
        emitter, plan = self._emitter, self._plan
        for op in plan.rescaling:
            emitter.op(op)
        for product in plan.late:
            acc, name = product.dot.acc, self._products.names[self._products.carried(product)]
            assert acc is not None
            text = str(emitter.in_layout(acc, self._shared.layouts[product.dot.result]))
            if text != name:
                self._line(f"{name} = {text}")

    def _emit_sums(self) -> None:
        """Without early products: one product in flight while the next tiles are waited for."""
        plan, writer, emitter = self._plan, self._emitter.writer, self._emitter
        late = [self._products.names[self._products.carried(product)] for product in plan.late]
        with writer.block("for turn in range(turns)"):
            self._start_step((), "turn")
            with bound_axes(emitter, plan):
                for op in plan.between:
                    emitter.op(op)
                self._rescale()
            sums = self._products.start_late("step + turn", [LAST_TURN])
            has_registers = any(product.lhs is None for product in plan.late)
            is_single = emitter.schedule.num_stages == 1
            is_waited = bool(plan.rescaling) or has_registers or is_single
            self._products.wait_late(sums, 0 if is_waited else len(sums))
            if is_waited:
                # A ring of one tile gets the next one only after this.
                self._products.release(LATE, "step + turn")
            else:
                with writer.block("if turn > 0"):
                    self._products.release(LATE, "step + turn - 1")
            self._assign_carried()
        if not is_waited:
            self._products.wait_products(late, late, 0)
            with writer.block("if turns > 0"):
                self._products.release(LATE, "step + turns - 1")

    def _assign_carried(self) -> None:
        """What else the loop carries, all at once."""
        emitter, loop = self._emitter, self._plan.loop
        pairs = [
            (
                self._products.names[arg],
                str(emitter.in_layout(value, self._shared.layouts.get(arg))),
            )
            for arg, value in zip(loop.carried, loop.body.yielded)
            if value not in self._late and value is not arg
        ]
        if pairs:
            targets, values = zip(*pairs)
            self._line(f"{', '.join(targets)} = {', '.join(values)}")
