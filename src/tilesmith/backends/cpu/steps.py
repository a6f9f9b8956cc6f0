"""Emits the steps of a plan in order: scalars, nests, products, loops and branches."""

from __future__ import annotations

from collections.abc import Mapping

from tilesmith.backends.cpu.casts import to_memory
from tilesmith.backends.cpu.combinations import emit_combination
from tilesmith.backends.cpu.elements import ElementEmitter
from tilesmith.backends.cpu.memory_access import write
from tilesmith.backends.cpu.nest_emitter import NestEmitter
from tilesmith.backends.cpu.nests import (
    CombineStep,
    DotStep,
    IfStep,
    LoopStep,
    Nest,
    PrintStep,
    ScalarStep,
    SortStep,
    Step,
    WhileStep,
)
from tilesmith.backends.cpu.prints import emit_print
from tilesmith.backends.cpu.products import ProductEmitter
from tilesmith.backends.cpu.registers import Register, number, register_element
from tilesmith.backends.cpu.roots import emit_masked_atomic
from tilesmith.backends.cpu.scans import emit_scan
from tilesmith.backends.cpu.sorts import emit_sort
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.control_flow import GridBarrier, Loop
from tilesmith.ir.ops.memory import Atomic, ProgramBarrier, Store
from tilesmith.ir.values import Value

PartialAxes = Mapping[Operation, tuple[bool, ...]]


class StepEmitter:
    """Emits steps into one function."""

    def __init__(
        self,
        elements: ElementEmitter,
        nests: NestEmitter,
        products: ProductEmitter,
        partial: PartialAxes,
    ) -> None:
        self.elements = elements
        self._e = elements
        self._b = elements.b
        self._nests = nests
        self.products = products
        self._partial = partial

    def run(self, steps: list[Step]) -> None:
        """Emit steps in order."""
        for step in steps:
            self._emit(step)

    def _emit(self, step: Step) -> None:
        if isinstance(step, Nest):
            self._nests.emit(step)
        elif isinstance(step, ScalarStep):
            self.scalar(step.op)
        elif isinstance(step, DotStep):
            self.products.emit(step)
        elif isinstance(step, LoopStep):
            self._loop(step)
        elif isinstance(step, WhileStep):
            self._while(step)
        elif isinstance(step, IfStep):
            self._if(step)
        elif isinstance(step, SortStep):
            emit_sort(self._e, step.op)
        elif isinstance(step, CombineStep):
            emit_combination(self._e, step.op, self._nests.width)
        elif isinstance(step, PrintStep):
            emit_print(self._e, step.op)
        else:
            emit_scan(self._e, step.op)

    def scalar(self, op: Operation) -> None:
        """An op on scalars."""
        with self._e.nest((), 1):
            if isinstance(op, Store):
                self._store(op)
            elif isinstance(op, Atomic):
                emit_masked_atomic(self._e, op, (), self._e.register((op.value, ())))
            elif not isinstance(op, (ProgramBarrier, GridBarrier)):
                self._e.scalars[op.result] = self._e.register((op.result, ()))

    def _store(self, op: Store) -> None:
        memory, position = self._e.address(op, ())
        value = to_memory(self._b, op.tensor.tensor.dtype, self._e.register((op.value, ())))
        write(self._b, memory, position, value, self._e.lanes, self._e.explicit_mask(op, ()))

    # --- loops ------------------------------------------------------------------------------------

    def set_index(self, value: Value, position: Register) -> None:
        """Give a loop's index argument its value, in its own type."""
        element = register_element(value.tile.dtype)
        if position.constant is not None:
            self._e.scalars[value] = number(element, position.constant)
        else:
            narrow = self._b.convert("trunc", position, element)
            self._e.scalars[value] = narrow

    def length_of_tile(self, block: str, begin: Register, end: Register, partial: bool) -> Register:
        """How many elements of a tile lie before the loop's end."""
        size = self._e.block_size(block)
        return self._b.minimum(size, self._b.subtract(end, begin)) if partial else size

    def _loop(self, step: LoopStep) -> None:
        op = step.op
        start = [self._e.scalars[value] for value in op.init if not value.tile.rank]
        saved = dict(self._e.lengths)
        final = self._level(step, 0, tuple(start))
        self._e.lengths = saved
        results = [value for value in op.results if not value.tile.rank]
        self._e.scalars.update(zip(results, final))

    def _level(
        self, step: LoopStep, axis: int, state: tuple[Register, ...]
    ) -> tuple[Register, ...]:
        op = step.op
        if axis == op.rank:
            carried = [value for value in op.carried if not value.tile.rank]
            self._e.scalars.update(zip(carried, state))
            self.run(step.body)
            return tuple(self._e.scalars[v] for v in op.body.yielded if not v.tile.rank)
        begin, end = (
            self._b.index_of(self._e.scalars[bounds[axis]]) for bounds in (op.begins, op.ends)
        )

        def body(position: Register, inner: tuple[Register, ...]) -> tuple[Register, ...]:
            self.set_index(op.body.args[axis], position)
            block = op.blocks[axis]
            if block:
                partial = self._partial[op][axis]
                self._e.lengths[block] = self.length_of_tile(block, position, end, partial)
            return self._level(step, axis + 1, inner)

        return self._b.loop(begin, end, self._step_of(op, axis), body, state)

    def _step_of(self, op: Loop, axis: int) -> Register:
        block = op.blocks[axis]
        if block:
            return self._e.block_size(block)
        position = sum(not other for other in op.blocks[:axis])
        return self._b.index_of(self._e.scalars[op.steps[position]])

    def _while(self, step: WhileStep) -> None:
        op = step.op

        def enter(args: tuple[Value, ...], state: tuple[Register, ...]) -> None:
            names = [value for value in args if not value.tile.rank]
            self._e.scalars.update(zip(names, state))

        def condition(state: tuple[Register, ...]) -> Register:
            enter(op.condition.args, state)
            self.run(step.condition)
            return self._e.scalars[op.condition.yielded[0]]

        def body(state: tuple[Register, ...]) -> list[Register]:
            enter(op.body.args, state)
            self.run(step.body)
            return [self._e.scalars[v] for v in op.body.yielded if not v.tile.rank]

        start = [self._e.scalars[value] for value in op.init if not value.tile.rank]
        enter(op.results, self._b.repeat(condition, body, start))

    def _if(self, step: IfStep) -> None:
        op = step.op

        def branch(steps: list[Step], yielded: tuple[Value, ...]) -> list[Register]:
            self.run(steps)
            return [self._e.scalars[value] for value in yielded if not value.tile.rank]

        found = self._b.if_else(
            self._e.scalars[op.condition],
            lambda: branch(step.then, op.then.yielded),
            lambda: branch(step.otherwise, op.otherwise.yielded),
        )
        results = [value for value in op.results if not value.tile.rank]
        self._e.scalars.update(zip(results, found))
