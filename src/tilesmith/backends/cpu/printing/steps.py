"""Steps of a plan as statements, loops and branches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack

from tilesmith.backends.cpu.coordinates import operands_at
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
from tilesmith.backends.cpu.printing.combine_text import print_combination
from tilesmith.backends.cpu.printing.dot_text import print_dot
from tilesmith.backends.cpu.printing.elements import ElementText
from tilesmith.backends.cpu.printing.expressions import Expr, call, number, subtract
from tilesmith.backends.cpu.printing.nest_text import print_atomic, print_nest, print_store
from tilesmith.backends.cpu.printing.print_text import print_print
from tilesmith.backends.cpu.printing.scan_text import print_scan
from tilesmith.backends.cpu.printing.scene import Scene
from tilesmith.backends.cpu.printing.sort_text import print_sort
from tilesmith.backends.cpu.printing.variables import Variables
from tilesmith.diagnostics.location import SourceLocation
from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.ops.control_flow import Grid, GridBarrier, If, Loop, While, Yield
from tilesmith.ir.ops.indexing import BlockSize, Full
from tilesmith.ir.ops.memory import Atomic, Load, ProgramBarrier, Store
from tilesmith.ir.values import Value

PartialAxes = Mapping[Operation, tuple[bool, ...]]
_MAX_INLINE = 56


class StepPrinter:
    """Prints the steps of one grid."""

    def __init__(self, scene: Scene, partial: PartialAxes) -> None:
        self._scene = scene
        self._lines = scene.lines
        self._names = scene.names
        self._partial = partial
        self._variables = Variables(scene)

    def run(self, steps: Sequence[Step], region: Region) -> None:
        """Print the steps of a region in order."""
        for step in steps:
            self._step(step, region)

    def _step(self, step: Step, region: Region) -> None:
        if isinstance(step, Nest):
            print_nest(self._scene, step)
            self._variables.add(op.result for _, op in step.reductions)
        elif isinstance(step, ScalarStep):
            self.scalar(step.op, region)
        elif isinstance(step, DotStep):
            print_dot(self._scene, step)
        elif isinstance(step, LoopStep):
            self._loop(step)
        elif isinstance(step, WhileStep):
            self._while(step)
        elif isinstance(step, IfStep):
            self._if(step)
        elif isinstance(step, SortStep):
            print_sort(self._scene, step)
        elif isinstance(step, CombineStep):
            print_combination(self._scene, step)
            self._variables.add(step.op.results)
        elif isinstance(step, PrintStep):
            print_print(self._scene, step.op)
        else:
            print_scan(self._scene, step)

    # --- scalars ----------------------------------------------------------------------------------

    def scalar(self, op: Operation, region: Region) -> None:
        """An op on scalars: a line, or part of a later one."""
        if isinstance(op, (Store, Atomic)):
            self._access(op)
            return
        if isinstance(op, (ProgramBarrier, GridBarrier)):
            return
        text = ElementText(self._scene, (), operands_at(op, ()))
        made = text.compute(op, ())
        if isinstance(op, (Full, BlockSize)) or self._is_part_of_user(op, made, region):
            self._scene.scalars[op.result] = made
            self._scene.sources[op.result] = tuple(self._lines_behind(op))
            return
        self._lines.quote(self._lines_behind(op))
        text.write(())
        name = self._names.of(op.result)
        self._lines.put(f"{name} = {made}")
        self._variables.define(op.result, name)

    def _lines_behind(self, op: Operation) -> list[SourceLocation]:
        parts = [loc for v in op.operand_values() for loc in self._scene.sources.get(v, ())]
        return [*parts, op.loc]

    def _access(self, op: Store | Atomic) -> None:
        self._lines.quote(self._lines_behind(op))
        text = ElementText(self._scene, (), ())
        if isinstance(op, Store):
            print_store(text, op, ())
        elif op.result in self._scene.users:
            self._variables.define(op.result, self._names.of(op.result))
            print_atomic(text, op, (), self._scene.scalars[op.result])
        else:
            print_atomic(text, op, (), None)
        text.write(())

    def _is_part_of_user(self, op: Operation, made: Expr, region: Region) -> bool:
        """Whether a value needs no line of its own: it has one use, in the same region."""
        users = self._scene.users.get(op.result, [])
        # What is read from memory must be read here: it may have changed by then.
        is_read = isinstance(op, Load) or any(v.tile.rank for v in op.operand_values())
        if len(users) != 1 or users[0] not in region.ops or is_read:
            return False
        (user,) = users
        if made.text.isidentifier() or isinstance(user, Yield):
            return True
        if self._names.hint(op.result) or len(made.text) > _MAX_INLINE:
            return False
        if isinstance(user, (Loop, If, While, Grid)):
            return True
        return not any(value.tile.rank for value in _tiles_of(user))

    # --- loops ------------------------------------------------------------------------------------

    def enter(self, op: Grid | Loop) -> list[tuple[str, str]]:
        """Name the indices of a loop: for each axis its header and the length of its tiles."""
        found: list[tuple[str, str]] = []
        steps = iter(op.steps if isinstance(op, Loop) else ())
        for axis, block in enumerate(op.blocks):
            arg = op.body.args[axis]
            begin, end = (self._scene.scalars[bounds[axis]] for bounds in (op.begins, op.ends))
            name = self._names.fresh((self._names.hint(arg) or "i").removesuffix("_begin"))
            self._names.share(arg, name)
            self._scene.scalars[arg] = Expr(name)
            if block:
                step = self._scene.block_size(block)
            else:
                step = self._scene.scalars[next(steps)] if isinstance(op, Loop) else number(1)
            bounds = [begin, end, step] if step.constant != 1 else [begin, end]
            header = f"{name} in {call('range', *bounds)}"
            found.append((header, self._tile_length(op, axis, name)))
        return found

    def _tile_length(self, op: Grid | Loop, axis: int, name: str) -> str:
        """A statement with the length of a tile where that varies."""
        block = op.blocks[axis]
        if not block:
            return ""
        size = self._scene.block_size(block)
        if not self._partial[op][axis] or size.constant == 1:
            self._scene.lengths[block] = size
            return ""
        end = self._scene.scalars[op.ends[axis]]
        length = self._names.fresh(f"{name}_size")
        self._scene.lengths[block] = Expr(length)
        return f"{length} = {call('min', size, subtract(end, Expr(name)))}"

    def _loop(self, step: LoopStep) -> None:
        op, lengths = step.op, dict(self._scene.lengths)
        carried = self._variables.start(op, op.carried)
        self._lines.quote(self._lines_behind(op))
        with self._names.scope(), ExitStack() as blocks:
            for header, statement in self.enter(op):
                blocks.enter_context(self._lines.block(f"for {header}"))
                if statement:
                    self._lines.put(statement)
            self.run(step.body, op.body)
            self._variables.assign(carried, op.body)
        self._scene.lengths.clear()
        self._scene.lengths.update(lengths)

    def _while(self, step: WhileStep) -> None:
        op = step.op
        carried = self._variables.start(op, op.body.args)
        for other, arg in zip(op.condition.args, op.body.args):
            if not arg.tile.rank:
                self._variables.define(other, self._scene.scalars[arg].text)
        self._lines.quote([op.loc])
        with self._names.scope(), self._lines.block("while True") as header:
            self.run(step.condition, op.condition)
            condition = self._scene.scalars[op.condition.yielded[0]]
            if not header.replace(f"while {condition}:"):
                self._lines.put(f"if not ({condition}): break")
            self.run(step.body, op.body)
            self._variables.assign(carried, op.body)

    def _if(self, step: IfStep) -> None:
        op = step.op
        self._lines.quote(self._lines_behind(op))
        results = [value for value in op.results if not value.tile.rank]
        names = [self._names.of(value) for value in results]
        with self._lines.block(f"if {self._scene.scalars[op.condition]}"):
            self._branch(step.then, op.then, names)
        if step.otherwise or names:
            with self._lines.block("else"):
                self._branch(step.otherwise, op.otherwise, names)
        for value, name in zip(results, names):
            self._variables.define(value, name)

    def _branch(self, steps: Sequence[Step], region: Region, names: list[str]) -> None:
        with self._names.scope():
            self.run(steps, region)
            self._variables.assign(names, region)


def _tiles_of(user: Operation) -> list[Value]:
    """What decides whether an op works on tiles."""
    return [user.value] if isinstance(user, (Store, Atomic)) else list(user.results)
