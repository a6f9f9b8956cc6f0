"""A grid's body as a plan: which nests there are, in what order, and which tiles are stored.

Pure tile ops cost nothing here: they are computed inside the nests that need them. What needs a
place in the order is scalars, stores, atomics, reductions, products, loops and kept tiles. A root
joins the earliest nest of its layout that comes after everything it depends on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from tilesmith.analysis.memory_conflicts import Access, accesses_in, find_accesses, is_disjoint
from tilesmith.analysis.memory_conflicts import is_same_place as is_same
from tilesmith.backends.cpu.carried_tiles import can_write_directly, takes_over
from tilesmith.backends.cpu.coordinates import VIRTUAL_OPS, Place, own_coords
from tilesmith.backends.cpu.layouts import choose_layout
from tilesmith.backends.cpu.nests import (
    DotStep,
    IfStep,
    LoopStep,
    Nest,
    Program,
    Root,
    ScalarStep,
    ScanStep,
    Step,
    WhileStep,
)
from tilesmith.backends.cpu.virtual_tiles import VirtualTiles, is_identity
from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.ops.control_flow import If, Loop, While, Yield
from tilesmith.ir.ops.indexing import Full
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.memory import Atomic, Load, ProgramBarrier, Store
from tilesmith.ir.ops.reduction import Reduce
from tilesmith.ir.ops.scan import Scan
from tilesmith.ir.traversal import walk
from tilesmith.ir.types import TileType
from tilesmith.ir.values import Value
from tilesmith.schedule.schedule import Schedule


def plan_program(
    region: Region, tiles: VirtualTiles, schedule: Schedule, spilled: dict[Value, Store]
) -> Program:
    """Order the steps of a grid's body. ``spilled`` tiles lie where a later store writes."""
    program = Program([], spilled=spilled)
    planner = RegionPlanner(region, tiles, schedule, program)
    program.steps = planner.plan()
    return program


class RegionPlanner:
    """Plans one region; nested ones get a planner of their own."""

    def __init__(
        self, region: Region, tiles: VirtualTiles, schedule: Schedule, program: Program
    ) -> None:
        self._region = region
        self._tiles = tiles
        self._schedule = schedule
        self._program = program
        self._steps: list[Step] = []
        self._accesses: list[list[Access]] = []
        self._made_at: dict[Value, int] = {}
        """The step after which a stored value of this region is there."""
        self._read_at: dict[Value, int] = {}
        """The last step that reads a buffer."""
        self._floor = 0

    def plan(self) -> list[Step]:
        """The steps of all ops but the terminator."""
        for op in self._region.ops:
            self._visit(op)
        return self._steps

    def _visit(self, op: Operation) -> None:
        if isinstance(op, (Loop, While, If)):
            self._visit_control_flow(op)
        elif isinstance(op, Dot):
            self._visit_dot(op)
        elif isinstance(op, (Yield, ProgramBarrier)):
            return
        elif isinstance(op, (Store, Atomic)) and op.value.tile.rank:
            self._visit_access(op)
        elif isinstance(op, Reduce):
            self._visit_reduction(op)
        elif not op.results or not op.result.tile.rank:
            self._append(ScalarStep(op), find_accesses(op, self._tiles.definitions), op.results)
        elif isinstance(op, VIRTUAL_OPS):
            if op.result in self._tiles.kept:
                self.keep(op.result, op.result)
        elif isinstance(op, Scan):
            self._program.buffers[op.result] = None
            self._append_reading(ScanStep(op), tuple(op.operand_values()), op.results)

    def _visit_access(self, op: Store | Atomic) -> None:
        root = Root(op, (op.value, own_coords(op.value.tile.shape)))
        if op.results and op.result.tile.rank:
            self._program.buffers[op.result] = None
        self._add_root(root, op.results)

    def _visit_reduction(self, op: Reduce) -> None:
        if op.result.tile.rank:
            self._program.buffers[op.result] = None
        self._add_root(Root(op, (op.x, own_coords(op.x.tile.shape))), op.results)

    def keep(self, value: Value, target: Value) -> None:
        """Store a tile in the buffer of ``target``."""
        self._program.buffers.setdefault(target, None)
        op = self._tiles.definitions.get(value)
        # A carried tile has no op of its own; any will do for its place in the source.
        root = Root(op or self._region.ops[0], (value, own_coords(value.tile.shape)), target)
        self._add_root(root, (target,))

    # --- order ------------------------------------------------------------------------------------

    def _add_root(self, root: Root, results: Iterable[Value]) -> None:
        layout = choose_layout(root, self._tiles, self._schedule)
        accesses = self._root_accesses(root)
        first = max(self._floor, self._after_operands(root), self._after_accesses(accesses))
        if root.target is not None:
            first = max(first, self._read_at.get(self._program.buffer_of(root.target), -1) + 1)
        leaves = [value for value, _ in self._closure_leaves(root)]
        for number in range(first, len(self._steps)):
            step = self._steps[number]
            if isinstance(step, Nest) and step.layout == layout:
                step.roots.append(root)
                self._accesses[number].extend(accesses)
                self._note(number, results, leaves)
                return
        self._append(Nest(layout, [root]), accesses, results)
        self._note(len(self._steps) - 1, results, leaves)

    def _append(
        self, step: Step, accesses: Iterable[Access], results: Iterable[Value] = ()
    ) -> None:
        self._steps.append(step)
        self._accesses.append(list(accesses))
        self._note(len(self._steps) - 1, results, ())

    def _note(self, number: int, made: Iterable[Value], read: Iterable[Value]) -> None:
        self._made_at.update((self._program.buffer_of(value), number) for value in made)
        for value in map(self._program.buffer_of, read):
            self._read_at[value] = max(number, self._read_at.get(value, -1))

    def _closure_leaves(self, root: Root) -> Collection[Place]:
        if root.is_own_keep:
            return self._tiles.own_closure(root.place).leaves
        return self._tiles.join(root.places()).leaves

    def _after_operands(self, root: Root) -> int:
        first = 0
        for value, coords in self._closure_leaves(root):
            number = self._made_at.get(self._program.buffer_of(value))
            if number is not None:
                first = max(first, number + (not self._is_in_registers(number, (value, coords))))
        return first

    def _is_in_registers(self, number: int, place: Place) -> bool:
        """Whether a nest computes that very element, so that a root in it can use it."""
        step = self._steps[number]
        if not isinstance(step, Nest) or not is_identity(place):
            return False
        return any(root.is_own_keep and root.target is place[0] for root in step.roots)

    def _root_accesses(self, root: Root) -> list[Access]:
        own = root.is_own_keep
        closure = self._tiles.own_closure(root.place) if own else self._tiles.join(root.places())
        ops = [op for op in closure.nodes.values() if isinstance(op, Load)]
        found = [access for op in ops for access in find_accesses(op, self._tiles.definitions)]
        if not root.is_keep:
            found.extend(find_accesses(root.op, self._tiles.definitions))
        elif root.target in self._program.spilled:
            store = self._program.spilled[root.target]
            found.extend(find_accesses(store, self._tiles.definitions))
        return found

    def _append_reading(
        self, step: Step, operands: tuple[Value, ...], results: Iterable[Value]
    ) -> None:
        """A step that reads whole tiles."""
        closure = self._tiles.join([(v, own_coords(v.tile.shape)) for v in operands])
        ops = [op for op in closure.nodes.values() if isinstance(op, Load)]
        accesses = [access for op in ops for access in find_accesses(op, self._tiles.definitions)]
        self._append(step, accesses, results)
        self._note(len(self._steps) - 1, (), [value for value, _ in closure.leaves])

    def _after_accesses(self, accesses: list[Access]) -> int:
        """The first step that may not come before what these accesses must follow."""
        for number in range(len(self._steps) - 1, -1, -1):
            orders = [_order(old, new) for old in self._accesses[number] for new in accesses]
            if any(order == _AFTER for order in orders):
                return number + 1
            if any(order == _WITH for order in orders):
                return number
        return 0

    # --- products and control flow ----------------------------------------------------------------

    def _visit_dot(self, op: Dot) -> None:
        self._program.buffers.setdefault(op.result, None)
        accumulator = op.acc
        zero = self._tiles.definitions.get(accumulator) if accumulator is not None else None
        if isinstance(zero, Full) and zero.value == 0:
            accumulator = None
        if accumulator is not None and not self._holds(op.result, accumulator):
            self.keep(accumulator, op.result)
        self._append_reading(DotStep(op, accumulator is not None), (op.lhs, op.rhs), op.results)

    def _holds(self, result: Value, accumulator: Value) -> bool:
        return self._program.buffer_of(result) is self._program.buffer_of(accumulator)

    def _visit_control_flow(self, op: Loop | While | If) -> None:
        if isinstance(op, If):
            step: Step = self._plan_branch(op)
        else:
            self._enter_loop(op)
            step = self._plan_loop(op) if isinstance(op, Loop) else self._plan_while(op)
        touched = [
            access
            for region in op.regions()
            for access in accesses_in(region, self._tiles.definitions)
        ]
        self._append(step, touched, op.results)
        used = [
            v for region in op.regions() for inner in walk(region) for v in inner.operand_values()
        ]
        leaves = self._tiles.join(
            [(v, own_coords(v.tile.shape)) for v in used if is_tile(v)]
        ).leaves
        self._note(len(self._steps) - 1, (), [value for value, _ in leaves])

    def _enter_loop(self, op: Loop | While) -> None:
        """Give carried tiles their buffers, filled with what the loop begins with."""
        carried = op.carried if isinstance(op, Loop) else op.body.args
        for position, (start, arg) in enumerate(zip(op.init, carried)):
            if not arg.tile.rank:
                continue
            self.keep(start, arg)
            self._program.aliases[op.results[position]] = arg
            if isinstance(op, While):
                self._program.aliases[op.condition.args[position]] = arg

    def _plan_loop(self, op: Loop) -> LoopStep:
        return LoopStep(op, self._plan_body(op.body, op.carried))

    def _plan_while(self, op: While) -> WhileStep:
        condition = self._nested(op.condition).plan()
        return WhileStep(op, condition, self._plan_body(op.body, op.body.args))

    def _nested(self, region: Region) -> RegionPlanner:
        return RegionPlanner(region, self._tiles, self._schedule, self._program)

    def _plan_body(self, region: Region, carried: tuple[Value, ...]) -> list[Step]:
        pairs = [(new, arg) for new, arg in zip(region.yielded, carried) if arg.tile.rank]
        for new, arg in pairs:
            if takes_over(new, arg, region, self._tiles):
                self._program.aliases[new] = arg
        inner = self._nested(region)
        steps = inner.plan()
        inner.hand_over(pairs)
        return steps

    def hand_over(self, pairs: list[tuple[Value, Value]]) -> None:
        """Write the next values of carried tiles to their buffers, all as if at once."""
        aliases = self._program.aliases
        pairs = [(new, arg) for new, arg in pairs if aliases.get(new) is not arg and new is not arg]
        args = {arg for _, arg in pairs}
        direct = [pair for pair in pairs if can_write_directly(*pair, args, self._tiles)]
        late: list[tuple[Value, Value]] = []
        for new, arg in pairs:
            if (new, arg) not in direct and not self._is_safe_source(new, args):
                copy = new.like(new.type)
                self.keep(new, copy)
                late.append((copy, arg))
            elif (new, arg) not in direct:
                late.append((new, arg))
        # Carried tiles change from here on, so nothing may join an earlier nest.
        self._floor = len(self._steps)
        for new, arg in [*direct, *late]:
            self.keep(new, arg)

    def _is_safe_source(self, new: Value, args: set[Value]) -> bool:
        """Whether a value lies in a buffer of its own, which no hand-over changes."""
        return self._tiles.is_stored(new) and self._program.buffer_of(new) not in args

    def _plan_branch(self, op: If) -> IfStep:
        steps: list[list[Step]] = []
        for region in (op.then, op.otherwise):
            inner = self._nested(region)
            planned = inner.plan()
            for new, result in zip(region.yielded, op.results):
                if result.tile.rank:
                    inner.keep(new, result)
            steps.append(planned)
        return IfStep(op, *steps)


def is_tile(value: Value) -> bool:
    """Whether the value is a tile rather than a tensor."""
    return isinstance(value.type, TileType)


_APART, _WITH, _AFTER = range(3)


def _order(old: Access, new: Access) -> int:
    """Whether an access may come before an earlier one, in the same nest, or only after it."""
    if not (old.writes or new.writes):
        return _APART
    if not (old.group is None or new.group is None or old.group == new.group):
        return _APART
    if is_disjoint(old, new):
        return _APART
    is_update = isinstance(new.op, Store) and isinstance(old.op, (Load, Store))
    return _WITH if is_update and is_same(old, new) else _AFTER
