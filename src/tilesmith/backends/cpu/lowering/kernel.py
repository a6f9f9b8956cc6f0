"""A function and its schedule as one kernel of the loop IR: statements, grids, and their work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilesmith.backends.cpu.loop_ir import statements
from tilesmith.backends.cpu.loop_ir.statements import Block, LoopAxis, Readers, Statement
from tilesmith.backends.cpu.loop_ir.whole_tiles import PackedOperand
from tilesmith.backends.cpu.lowering import nests
from tilesmith.backends.cpu.lowering.known_extents import KnownExtents
from tilesmith.backends.cpu.lowering.nests import ElementLowering
from tilesmith.backends.cpu.lowering.prefetches import find_prefetches
from tilesmith.backends.cpu.lowering.scopes import (
    GridScope,
    KernelScope,
    find_packed_operands,
)
from tilesmith.backends.cpu.op_costs import elements_worth
from tilesmith.backends.cpu.planning.materialize import plan_grid
from tilesmith.backends.cpu.planning.steps import DotStep, Nest, OpStep, Program, Step
from tilesmith.backends.cpu.planning.virtual_tiles import VirtualTiles
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.ops import control_flow
from tilesmith.ir.ops.control_flow import GridBarrier, If, Loop, While, Yield
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.memory import Atomic, Load, ProgramBarrier, Store
from tilesmith.ir.traversal import definitions
from tilesmith.ir.types import TensorType, Value
from tilesmith.schedule.schedule import Schedule


@dataclass(frozen=True)
class _StatementLowering:
    """Lowers the steps of one grid, or the scalars outside of grids."""

    _scope: GridScope
    _packed: Mapping[Dot, PackedOperand]
    _ahead: Mapping[Nest, Mapping[Load, tuple[int, ...]]]

    def block(self, steps: Sequence[Step], region: Region) -> Block:
        """The steps of a region, in order."""
        found = (self._statement(step, region) for step in steps)
        return tuple(statement for statement in found if statement is not None)

    def _statement(self, step: Step, region: Region) -> Statement | None:
        if isinstance(step, Nest):
            return nests.lower_nest(self._scope, step, self._ahead.get(step, {}))
        if isinstance(step, DotStep):
            return nests.lower_product(self._scope, step, self._packed.get(step.op))
        op = step.op
        rule = nests.WHOLE_TILES.get(type(op))
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
        if isinstance(op, (Store, Atomic)):
            return nests.lower_access(elements, op, ())
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
                    is_partial=bool(block) and self._scope.kernel.partial_axes[op][axis],
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


def lower_kernel(function: Function, schedule: Schedule) -> statements.Kernel:
    """Plan all grids of a function, and say what they do."""
    kernel = KernelScope(function, schedule)
    everything = VirtualTiles(definitions(function.body))
    outside = _StatementLowering(GridScope(kernel, everything, Program([])), {}, {})
    body: list[Statement | statements.Grid] = []
    for op in function.body.ops:
        if isinstance(op, control_flow.Grid):
            body.append(_lower_grid(function, op, kernel))
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
        block_sizes=kernel.block_sizes,
        target=schedule.target,
        options=schedule.cpu,
        body=tuple(body),
        shows_lines=bool(schedule.backend_options.get("output_origin_lines", True)),
    )


def _lower_grid(function: Function, op: control_flow.Grid, kernel: KernelScope) -> statements.Grid:
    schedule = kernel.schedule
    program, tiles = plan_grid(function, op.body, schedule)
    scope = GridScope(kernel, tiles, program)
    packed = find_packed_operands(scope, op)
    lowering = _StatementLowering(scope, packed, find_prefetches(scope, op))
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
        work=max(1, sum(_work(step, kernel.extents, tiles) for step in program.steps)),
        loc=op.loc,
    )


_FLOPS_PER_ELEMENT = 8


def _work(step: Step, extents: KnownExtents, tiles: VirtualTiles) -> int:
    """Elements computed by a step."""
    if isinstance(step, Nest):
        made = {op for root in step.roots for _, op in root.closure(tiles).nodes}
        return extents.elements(step.layout.space) * max(len(step.roots), elements_worth(made))
    op = step.op
    if isinstance(op, Dot):
        contracted = extents.most(op.lhs.tile.shape[-1])
        return extents.elements(op.result.tile.shape) * contracted // _FLOPS_PER_ELEMENT
    if type(op) in nests.WHOLE_TILES:
        return sum(extents.elements(value.tile.shape) for value in op.operand_values())
    if not isinstance(step, OpStep) or not step.bodies:
        return 1
    # Only the body of a loop counts, not its condition.
    bodies = step.bodies[-1:] if isinstance(op, (Loop, While)) else step.bodies
    inside = sum(_work(inner, extents, tiles) for body in bodies for inner in body)
    return inside * extents.iterations(op) if isinstance(op, (Loop, While)) else inside
