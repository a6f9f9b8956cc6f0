"""A function and its schedule as one kernel of the loop IR: statements, grids, and their work."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from tilesmith.analysis.partial_tiles import find_partial_axes
from tilesmith.backends.cpu.loop_ir import statements
from tilesmith.backends.cpu.loop_ir.nests import StoreElement
from tilesmith.backends.cpu.loop_ir.statements import Block, LoopAxis, Readers, Statement
from tilesmith.backends.cpu.loop_ir.whole_tiles import PackedOperand
from tilesmith.backends.cpu.lowering import nests
from tilesmith.backends.cpu.lowering.nests import ElementLowering
from tilesmith.backends.cpu.lowering.scopes import GridScope, KernelScope
from tilesmith.backends.cpu.planning.ahead import find_packed_operands, find_prefetches
from tilesmith.backends.cpu.planning.materialize import plan_grid
from tilesmith.backends.cpu.planning.steps import DotStep, Nest, OpStep, Program, Step
from tilesmith.backends.cpu.planning.virtual_tiles import VirtualTiles
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.ops import control_flow
from tilesmith.ir.ops.control_flow import GridBarrier, If, Loop, While, Yield
from tilesmith.ir.ops.foreign import Print
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.memory import Atomic, Load, ProgramBarrier, Store
from tilesmith.ir.ops.rearrangement import Sort
from tilesmith.ir.ops.reduction import ReduceWith, Scan, ScanWith
from tilesmith.ir.traversal import definitions
from tilesmith.ir.types import Shape, TensorType, Value
from tilesmith.schedule.schedule import Schedule

PartialAxes = Mapping[Operation, tuple[bool, ...]]


@dataclass(frozen=True)
class _StatementLowering:
    """Lowers the steps of one grid, or the scalars outside of grids."""

    _scope: GridScope
    _schedule: Schedule
    _partial: PartialAxes
    _packed: Mapping[Dot, PackedOperand]
    _ahead: Mapping[Nest, Mapping[Load, tuple[int, ...]]]

    def block(self, steps: Sequence[Step], region: Region) -> Block:
        """The steps of a region, in order."""
        found = (self._statement(step, region) for step in steps)
        return tuple(statement for statement in found if statement is not None)

    def _statement(self, step: Step, region: Region) -> Statement | None:
        if isinstance(step, Nest):
            ahead = self._ahead.get(step, {})
            return nests.lower_nest(self._scope, self._schedule, step, ahead)
        if isinstance(step, DotStep):
            return nests.lower_product(self._scope, self._schedule, step, self._packed.get(step.op))
        op = step.op
        rule = _WHOLE_TILES.get(type(op))
        if rule is not None:
            return rule(self._scope, op)
        if isinstance(op, Loop):
            return self._loop(op, *step.bodies)
        if isinstance(op, While):
            return self._while(op, *step.bodies)
        return self._if(op, *step.bodies) if isinstance(op, If) else self.scalar(op, region)

    def scalar(self, op: Operation, region: Region) -> Statement | None:
        """An op on scalars; None for one that does nothing here."""
        elements = ElementLowering(self._scope)
        if isinstance(op, Store):
            value = elements.get((op.value, ()))
            return StoreElement(value, elements.access(op, ()), op.loc)
        if isinstance(op, Atomic):
            result = self._scope.variable(op.result) if op.result in self._scope.users else None
            return nests.lower_atomic(elements, op, (), result)
        if isinstance(op, (ProgramBarrier, GridBarrier)):
            return None
        value = elements.compute(op, ())
        variable = self._scope.variable(op.result)
        return statements.Assign(variable, value, self._readers(op, region))

    def _readers(self, op: Operation, region: Region) -> Readers:
        users = self._scope.users.get(op.result, [])
        # What is read from memory must be read here: it may have changed by then.
        is_read = isinstance(op, Load) or any(v.tile.rank for v in op.operand_values())
        if len(users) != 1 or is_read or users[0] not in region.ops:
            return Readers.SEVERAL
        (user,) = users
        if isinstance(user, Yield):
            return Readers.END_OF_BLOCK
        if isinstance(user, (Loop, If, While, control_flow.Grid)):
            return Readers.SCALAR
        made = [user.value] if isinstance(user, (Store, Atomic)) else user.results
        return Readers.TILE if any(value.tile.rank for value in made) else Readers.SCALAR

    def axes(self, op: control_flow.Grid | Loop) -> tuple[LoopAxis, ...]:
        """The loops of an op."""
        variable = self._scope.variable
        steps = iter(op.steps if isinstance(op, Loop) else ())
        found: list[LoopAxis] = []
        for axis, block in enumerate(op.blocks):
            has_step = isinstance(op, Loop) and not block
            found.append(
                LoopAxis(
                    index=variable(op.body.args[axis]),
                    begin=variable(op.begins[axis]),
                    end=variable(op.ends[axis]),
                    step=variable(next(steps)) if has_step else None,
                    block=block,
                    is_partial=bool(block) and self._partial[op][axis],
                )
            )
        return tuple(found)

    def _loop(self, op: Loop, body: list[Step]) -> Statement:
        carried = self._carried(op, op.carried)
        return statements.For(self.axes(op), carried, self.block(body, op.body), op.loc)

    def _while(self, op: While, condition: list[Step], body: list[Step]) -> Statement:
        return statements.While(
            carried=self._carried(op, op.body.args),
            condition=self.block(condition, op.condition),
            is_open=self._scope.variable(op.condition.yielded[0]),
            body=self.block(body, op.body),
            loc=op.loc,
        )

    def _carried(self, op: Loop | While, args: Sequence[Value]) -> tuple[statements.Carried, ...]:
        variable = self._scope.variable
        tested = op.condition.args if isinstance(op, While) else (None,) * len(args)
        rows = zip(op.init, args, op.results, op.body.yielded, tested)
        return tuple(
            statements.Carried(
                start=variable(start),
                inside=variable(arg),
                result=variable(result),
                following=variable(following),
                is_last_use=self._scope.users[start] == [op],
                tested=None if test is None else variable(test),
            )
            for start, arg, result, following, test in rows
            if not arg.tile.rank
        )

    def _if(self, op: If, then: list[Step], otherwise: list[Step]) -> Statement:
        scalars = [n for n, value in enumerate(op.results) if not value.tile.rank]
        ours, theirs = (
            tuple(self._scope.variable(region.yielded[n]) for n in scalars)
            for region in (op.then, op.otherwise)
        )
        return statements.If(
            condition=self._scope.variable(op.condition),
            then=self.block(then, op.then),
            otherwise=self.block(otherwise, op.otherwise),
            results=tuple(self._scope.variable(op.results[n]) for n in scalars),
            yielded=(ours, theirs),
            loc=op.loc,
        )


_WHOLE_TILES: dict[type[Operation], Callable[[GridScope, Any], Statement | None]] = {
    Print: nests.lower_print,
    ReduceWith: nests.lower_combination,
    Scan: nests.lower_scan,
    ScanWith: nests.lower_combination,
    Sort: nests.lower_sort,
}
"""Ops that go through whole tiles by themselves."""


def lower_kernel(function: Function, schedule: Schedule) -> statements.Kernel:
    """Plan all grids of a function, and say what they do."""
    blocks = {block.name: schedule.symbols[block.name] for block in function.blocks}
    kernel, partial = KernelScope(function, blocks), find_partial_axes(function, schedule.symbols)
    everything = VirtualTiles(definitions(function.body))
    scope = GridScope(kernel, everything, Program([]), schedule.target)
    outside = _StatementLowering(scope, schedule, partial, {}, {})
    body: list[Statement | statements.Grid] = []
    for op in function.body.ops:
        if isinstance(op, control_flow.Grid):
            body.append(_lower_grid(function, op, schedule, kernel, partial))
        else:
            statement = outside.scalar(op, function.body)
            body.extend(() if statement is None else (statement,))
    values = [parameter.value for parameter in function.parameters]
    return statements.Kernel(
        name=function.name,
        parameters=tuple(
            kernel.tensor(value) if isinstance(value.type, TensorType) else kernel.variable(value)
            for value in values
        ),
        block_sizes=blocks,
        target=schedule.target,
        options=schedule.cpu,
        body=tuple(body),
        shows_lines=bool(schedule.backend_options.get("output_origin_lines", True)),
    )


def _lower_grid(
    function: Function,
    op: control_flow.Grid,
    schedule: Schedule,
    kernel: KernelScope,
    partial: PartialAxes,
) -> statements.Grid:
    program, tiles = plan_grid(function, op.body, schedule)
    records = kernel.tensor, kernel.variable
    packed = find_packed_operands(function, op, tiles, schedule, records)
    ahead = find_prefetches(op, program, tiles, schedule)
    scope = GridScope(kernel, tiles, program, schedule.target)
    lowering = _StatementLowering(scope, schedule, partial, packed, ahead)
    options = schedule.grids.get(op.slot)
    default = tuple(reversed(range(len(op.blocks))))
    return statements.Grid(
        axes=lowering.axes(op),
        order=default if options is None else options.order,
        has_chosen_order=options is not None,
        tiles=tuple(
            scope.tile(value)
            for value in program.buffers
            if value not in program.aliases and value not in program.spilled
        ),
        packed=tuple(dict.fromkeys(operand.source for operand in packed.values())),
        body=lowering.block(program.steps, op.body),
        work=max(1, sum(_work(step, schedule) for step in program.steps)),
        loc=op.loc,
    )


_ITERATIONS = 8
"""What a loop of unknown length is taken for."""
_FLOPS_PER_ELEMENT = 8


def _numel(shape: Shape, schedule: Schedule) -> int:
    return prod(schedule.physical_shape(shape))


def _work(step: Step, schedule: Schedule) -> int:
    """Elements computed by a step."""
    if isinstance(step, Nest):
        return _numel(step.layout.space, schedule) * len(step.roots)
    op = step.op
    if isinstance(op, Dot):
        contracted = schedule.physical(op.lhs.tile.shape[-1])
        return _numel(op.result.tile.shape, schedule) * contracted // _FLOPS_PER_ELEMENT
    if isinstance(op, Print):
        return sum(_numel(value.tile.shape, schedule) for value in op.values)
    if isinstance(op, (ReduceWith, ScanWith)):
        return _numel(op.xs[0].tile.shape, schedule) * len(op.xs)
    if isinstance(op, (Scan, Sort)):
        return _numel(op.result.tile.shape, schedule)
    if not isinstance(step, OpStep) or not step.bodies:
        return 1
    repeated = isinstance(op, (Loop, While))
    # Only the body of a loop counts, not its condition.
    bodies = step.bodies[-1:] if repeated else step.bodies
    inside = sum(_work(inner, schedule) for body in bodies for inner in body)
    return inside * _ITERATIONS if repeated else inside
