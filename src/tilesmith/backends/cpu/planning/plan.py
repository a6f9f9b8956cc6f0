"""A grid's body as a plan: which nests there are, in what order, and which tiles are stored.

Pure tile ops cost nothing here: they are computed inside the nests that need them. What needs a
place in the order is scalars, stores, atomics, reductions, products, loops and kept tiles. A root
joins the earliest nest of its layout that comes after everything it depends on.
"""

from __future__ import annotations

from tilesmith.analysis.memory_conflicts import accesses_in, find_accesses
from tilesmith.backends.cpu.planning.coordinates import is_virtual, own_place
from tilesmith.backends.cpu.planning.single_positions import find_update, index_bounds
from tilesmith.backends.cpu.planning.steps import DotStep, OpStep, Program, Root, Step, StepOrder
from tilesmith.backends.cpu.planning.virtual_tiles import VirtualTiles, is_identity
from tilesmith.diagnostics.catalogue import InternalError
from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.ops.control_flow import If, Loop, While, Yield
from tilesmith.ir.ops.foreign import Print
from tilesmith.ir.ops.indexing import Full
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.memory import Atomic, ProgramBarrier, Store
from tilesmith.ir.ops.rearrangement import Select, Sort
from tilesmith.ir.ops.reduction import Reduce, ReduceWith, Scan, ScanWith
from tilesmith.ir.traversal import count_uses, values_used_by, walk
from tilesmith.ir.types import TileType, Value
from tilesmith.schedule.schedule import Schedule


def plan_program(
    region: Region, tiles: VirtualTiles, schedule: Schedule, spilled: dict[Value, Store]
) -> Program:
    """Order the steps of a grid's body. ``spilled`` tiles lie where a later store writes."""
    bounds = index_bounds(region, tiles.definitions.get)
    program = Program([], spilled=spilled, used=frozenset(count_uses(region)), bounds=bounds)
    planner = _RegionPlanner(region, tiles, schedule, program)
    program.steps = planner.plan()
    return program


class _RegionPlanner:
    """Plans one region; nested ones get a planner of their own."""

    def __init__(
        self, region: Region, tiles: VirtualTiles, schedule: Schedule, program: Program
    ) -> None:
        self._region = region
        self._tiles = tiles
        self._schedule = schedule
        self._program = program
        self._order = StepOrder(tiles, schedule, program)

    def plan(self) -> list[Step]:
        for op in self._region.ops:
            self._visit(op)
        return self._order.steps

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
            self._program.buffers.update({op.result: None} if op.result.tile.rank else {})
            self._order.add_root(Root(op, own_place(op.x)), op.results)
        elif isinstance(op, (Scan, ReduceWith, ScanWith, Print)):
            self._visit_whole(op)
        elif isinstance(op, Sort):
            self.keep(op.x, op.result)
            self._order.append(OpStep(op), (), op.results)
        else:
            self._visit_value(op)

    def _visit_value(self, op: Operation) -> None:
        """A scalar is computed where it stands, a tile where it is used unless it is kept."""
        if isinstance(op, Select) and not op.result.tile.rank:
            self._order.append_reading(OpStep(op), (op.x,), op.results)
        elif not op.results or not op.result.tile.rank:
            self._order.append(OpStep(op), find_accesses(op, self._tiles.definitions), op.results)
        elif not is_virtual(type(op)):
            raise InternalError(problem=f"native code has no step for {op.name}", loc=op.loc)
        elif op.result in self._tiles.kept:
            self.keep(op.result, op.result)

    def _visit_whole(self, op: Scan | ReduceWith | ScanWith | Print) -> None:
        """An op that goes through whole tiles by itself, after everything before it."""
        used = [value for value in op.results if value in self._program.used and value.tile.rank]
        self._program.buffers.update(dict.fromkeys(used))
        self._order.append_reading(OpStep(op), tuple(op.operand_values()), op.results)

    def _visit_access(self, op: Store | Atomic) -> None:
        root = Root(op, own_place(op.value))
        if isinstance(op, Atomic) and op.result in self._program.used:
            self._program.buffers[op.result] = None
        self._order.add_root(root, op.results)

    def keep(self, value: Value, target: Value) -> None:
        self._program.buffers.setdefault(target, None)
        op = self._tiles.definitions.get(value)
        # A carried tile has no op of its own; any will do for its place in the source.
        root = Root(op or self._region.ops[0], own_place(value), target)
        self._order.add_root(root, (target,))

    def _visit_dot(self, op: Dot) -> None:
        self._program.buffers.setdefault(op.result, None)
        accumulator = op.acc
        zero = self._tiles.definitions.get(accumulator) if accumulator is not None else None
        if isinstance(zero, Full) and zero.value == 0:
            accumulator = None
        buffer_of = self._program.buffer_of
        if accumulator is not None and buffer_of(op.result) is not buffer_of(accumulator):
            self.keep(accumulator, op.result)
        step = DotStep(op, accumulator is not None, self._program.starts.get(op))
        self._order.append_reading(step, (op.lhs, op.rhs), op.results)

    def _visit_control_flow(self, op: Loop | While | If) -> None:
        if isinstance(op, If):
            bodies = self._plan_arm(op, op.then), self._plan_arm(op, op.otherwise)
        elif isinstance(op, Loop):
            self._enter_loop(op, op.carried)
            bodies = (self._plan_body(op.body, op.carried),)
        else:
            self._enter_loop(op, op.body.args)
            condition = self._nested(op.condition).plan()
            bodies = condition, self._plan_body(op.body, op.body.args)
        definitions = self._tiles.definitions
        touched = [access for region in op.regions() for access in accesses_in(region, definitions)]
        used = values_used_by([inner for region in op.regions() for inner in region.ops])
        tiles = [value for value in used if isinstance(value.type, TileType)]
        leaves = self._tiles.join(list(map(own_place, tiles))).leaves
        self._order.append(OpStep(op, bodies), touched, op.results, leaves)

    def _enter_loop(self, op: Loop | While, carried: tuple[Value, ...]) -> None:
        """Give carried tiles their buffers, filled with what the loop begins with."""
        for position, (start, arg) in enumerate(zip(op.init, carried)):
            if not arg.tile.rank:
                continue
            dot = _find_zero_start(op, position, self._tiles)
            if dot is not None and isinstance(op, Loop):
                self._program.buffers.setdefault(arg, None)
                self._program.starts[dot] = op
            elif self._is_handed_in(start):
                self._program.aliases[arg] = start
            else:
                self.keep(start, arg)
            self._program.aliases[op.results[position]] = arg
            if isinstance(op, While):
                self._program.aliases[op.condition.args[position]] = arg

    def _is_handed_in(self, start: Value) -> bool:
        """Whether a loop begins with what a loop around it carries, which nobody else looks at."""
        uses = sum(value is start for value in values_used_by(self._region.ops))
        return start in self._region.args and uses == 1

    def _nested(self, region: Region) -> _RegionPlanner:
        return _RegionPlanner(region, self._tiles, self._schedule, self._program)

    def _plan_body(self, region: Region, carried: tuple[Value, ...]) -> list[Step]:
        pairs = [(new, arg) for new, arg in zip(region.yielded, carried) if arg.tile.rank]
        for new, arg in pairs:
            if _takes_over(new, arg, region, self._tiles):
                self._program.aliases[new] = arg
        inner = self._nested(region)
        steps = inner.plan()
        inner.hand_over(pairs)
        return steps

    def hand_over(self, pairs: list[tuple[Value, Value]]) -> None:
        """Write the next values of carried tiles to their buffers, all as if at once."""
        buffer_of = self._program.buffer_of
        pairs = [(new, arg) for new, arg in pairs if buffer_of(new) is not buffer_of(arg)]
        args = {buffer_of(arg) for _, arg in pairs}
        direct = [pair for pair in pairs if self._can_write_directly(*pair, args)]
        late: list[tuple[Value, Value]] = []
        for new, arg in pairs:
            if (new, arg) in direct:
                continue
            source = new
            # In a buffer of its own no hand-over changes it.
            if not self._tiles.is_stored(new) or buffer_of(new) in args:
                source = new.like(new.type)
                self.keep(new, source)
            late.append((source, arg))
        # Carried tiles change from here on, so nothing may join an earlier nest.
        self._order.close()
        for new, arg in direct:
            self._overwrite(new, arg)
        for new, arg in late:
            self.keep(new, arg)

    def _overwrite(self, new: Value, arg: Value) -> None:
        """Write a tile over the one it is made from: all of it, or what differs."""
        buffer_of = self._program.buffer_of
        update = find_update(new, self._tiles.definitions, self._program.bounds)
        if update is None or buffer_of(update.old) is not buffer_of(arg):
            self.keep(new, arg)
            return
        op = self._tiles.definitions[new]
        self._order.add_root(Root(op, (update.new, update.coords), arg), (arg,))

    def _can_write_directly(self, new: Value, arg: Value, args: set[Value]) -> bool:
        """Whether a virtual tile may overwrite ``arg`` while it is computed.

        It may read no carried tile but ``arg``, and of that only the element it replaces. The
        result of an inner loop may lie in the memory of a carried tile.
        """
        if self._tiles.is_stored(new):
            return False
        leaves = self._tiles.closure(own_place(new)).leaves
        buffers = [(self._program.buffer_of(place[0]), place) for place in leaves]
        own = self._program.buffer_of(arg)
        return all(b is own and is_identity(place) for b, place in buffers if b in args)

    def _plan_arm(self, op: If, region: Region) -> list[Step]:
        inner = self._nested(region)
        steps = inner.plan()
        for new, result in zip(region.yielded, op.results):
            if result.tile.rank:
                inner.keep(new, result)
        return steps


def _takes_over(new: Value, arg: Value, region: Region, tiles: VirtualTiles) -> bool:
    """Whether a product may accumulate in the buffer of the carried tile it becomes."""
    dot = tiles.definitions.get(new)
    if not isinstance(dot, Dot) or dot not in region.ops or region.yielded.count(new) > 1:
        return False
    operands = tiles.join([own_place(dot.lhs), own_place(dot.rhs)])
    if any(value is arg for value, _ in operands.leaves):
        return False
    if dot.acc is not None:
        leaves = tiles.closure(own_place(dot.acc)).leaves
        if not all(is_identity(place) for place in leaves if place[0] is arg):
            return False
    # Nothing after the product may look at the old content of the carried tile.
    order = {op: n for n, top in enumerate(region.ops) for op in walk(Region((), (top,)))}
    return all(order[user] <= order[dot] for user in final_users(arg, region, tiles))


def _find_zero_start(op: Loop | While, position: int, tiles: VirtualTiles) -> Dot | None:
    """The product that a loop begins with zeros only to add to them; they need not be written.

    The loop must run, and nothing else may look at the carried tile.
    """
    if not isinstance(op, Loop) or tiles.constant_number(op.init[position]) != 0:
        return None
    arg, new = op.carried[position], op.body.yielded[position]
    dot = tiles.definitions.get(new)
    if not isinstance(dot, Dot) or dot.acc is not arg:
        return None
    is_own = _takes_over(new, arg, op.body, tiles)
    is_fixed = not set(op.blocks) & {name for dim in arg.tile.shape for name in dim.symbols}
    uses = sum(value is arg for value in values_used_by(op.body.ops))
    ranges = zip(map(tiles.constant_number, op.begins), map(tiles.constant_number, op.ends))
    surely_runs = all(x is not None and y is not None and x < y for x, y in ranges)
    return dot if is_own and is_fixed and uses == 1 and surely_runs else None


def final_users(arg: Value, region: Region, tiles: VirtualTiles) -> list[Operation]:
    """The ops at whose place elements of a tile are read, through virtual tiles."""
    reached, found = {arg}, list[Operation]()
    for op in walk(region):
        if not any(value in reached for value in op.operand_values()):
            continue
        if len(op.results) == 1 and not tiles.is_stored(op.result):
            reached.add(op.result)
        else:
            found.append(op)
    return found
