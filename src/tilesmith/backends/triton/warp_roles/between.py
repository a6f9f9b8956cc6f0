"""What lies between products, as a function: the first turn and all others call it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tilesmith.backends.triton.emission.axes import start_name
from tilesmith.backends.triton.warp_roles.emitter import GROUP, RoleEmitter
from tilesmith.backends.triton.warp_roles.loading import Shared
from tilesmith.backends.triton.warp_roles.plan import Product, RolePlan
from tilesmith.backends.triton.warp_roles.segments import IS_MASKED, emit_selection, find_segments
from tilesmith.ir.operation import Operation
from tilesmith.ir.types import Value


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
        read = self._leaves(v for op in part.followers for v in op.operand_values())
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
