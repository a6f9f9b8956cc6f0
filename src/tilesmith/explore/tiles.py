"""Which program touches which elements, in which step: what the picture of the tiles shows.

The interpreter runs programs in the order of their launch, but of each only what indices, masks,
loop bounds and branches depend on: tiles that are merely computed with are never made. Tensors that
decide where others are accessed are copied before anything is stored to them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import prod
from typing import Any

import torch
from typing_extensions import override

from tilesmith.interpreter.access import Access, SliceAccess
from tilesmith.interpreter.effects import resolve_access
from tilesmith.interpreter.frame import Frame, PreparedFunction, prepare_function
from tilesmith.interpreter.observers import Sampling
from tilesmith.interpreter.run import EVALUATORS, run_prepared
from tilesmith.interpreter.torch_dtypes import to_torch
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.ops.control_flow import Grid, GroupBarrier, If, Loop, While, Yield
from tilesmith.ir.ops.memory import Atomic, Load, Store
from tilesmith.ir.traversal import walk_function
from tilesmith.ir.types import Value
from tilesmith.schedule.schedule import GridOptions

AccessOp = Load | Store | Atomic
Range = tuple[int, int]
"""The first index and how many from there on."""
MAX_BOXES, MAX_PROGRAMS, FEWEST = 6000, 400, 6
MAX_PARTS = 48
"""Boxes of one gather; beyond, one box around all."""
IN_A_ROW = 0.75
"""Of the programs shown, those that are launched one after the other from the first on."""
_FLOW = (Grid, GroupBarrier, If, Loop, While, Yield)


@dataclass(frozen=True)
class Box:
    """A part of a tensor that one access touches."""

    access: int
    ranges: tuple[Range, ...]
    elements: int
    """Touched in it: fewer than it holds where steps or masks leave some out."""


@dataclass
class Step:
    """Accesses between two turns of loops: where the loops stand, and what is touched."""

    at: tuple[int, ...]
    boxes: list[Box] = field(default_factory=list[Box])


@dataclass
class Program:
    """One program: its number in the order of launch, where its tiles start, what it does."""

    grid: int
    number: int
    starts: tuple[int, ...]
    steps: list[Step] = field(default_factory=list[Step])


@dataclass(frozen=True)
class GridShape:
    """The programs of one device loop."""

    names: tuple[str, ...]
    counts: tuple[int, ...]
    sizes: tuple[int, ...]

    @property
    def total(self) -> int:
        """How many there are."""
        return prod(self.counts)


@dataclass
class Picture:
    """What was recorded."""

    grids: list[GridShape] = field(default_factory=list[GridShape])
    programs: list[Program] = field(default_factory=list[Program])
    accesses: list[AccessOp] = field(default_factory=list[AccessOp])


def launch_order(counts: Sequence[int], options: GridOptions | None) -> Iterator[tuple[int, ...]]:
    """The place of every program in the grid, in the order of their numbers.

    Example:
        >>> list(launch_order([2, 2], None))
        [(0, 0), (1, 0), (0, 1), (1, 1)]
    """
    rank = len(counts)
    order = options.order if options and len(options.order) == rank else tuple(range(rank))
    grouping = options.l2_grouping if options and rank > 1 else 1
    if grouping <= 1:
        for place in product(*(range(counts[axis]) for axis in reversed(order))):
            yield _by_axis(dict(zip(reversed(order), place)))
        return
    first, second, *outer = order
    for slow in product(*(range(counts[axis]) for axis in reversed(outer))):
        for start in range(0, counts[first], grouping):
            rows = range(start, min(counts[first], start + grouping))
            for column, row in product(range(counts[second]), rows):
                yield _by_axis({**dict(zip(reversed(outer), slow)), first: row, second: column})


def _by_axis(place: Mapping[int, int]) -> tuple[int, ...]:
    return tuple(place[axis] for axis in sorted(place))


class Recorder(Sampling):
    """Chooses the programs to run, and keeps what they touch."""

    def __init__(self, function: Function, orders: Mapping[int, GridOptions], limit: Limit) -> None:
        super().__init__(max_programs=limit.programs, time_limit_s=limit.seconds)
        self.picture = Picture()
        self._grids = [op for op in function.body.ops if isinstance(op, Grid)]
        self._orders, self._most = orders, limit
        self._loops = _enclosing_loops(function.body)
        self._places: dict[AccessOp, int] = {}
        self._num_boxes = 0

    @override
    def starts(
        self, ranges: Sequence[range], *, is_whole: bool = False
    ) -> Iterator[tuple[int, ...]]:
        """The first indices of the programs that are shown, in the order of their launch."""
        number = len(self.picture.grids)
        op = self._grids[number]
        names = tuple(block or arg.name for block, arg in zip(op.blocks, op.body.args))
        counts = tuple(map(len, ranges))
        self.picture.grids.append(GridShape(names, counts, tuple(r.step for r in ranges)))
        options = self._orders.get(op.slot)
        chosen = self._chosen_numbers(prod(counts), is_whole=is_whole)
        for place, position in enumerate(launch_order(counts, options)):
            if place in chosen or (not chosen and place == 0):
                starts = tuple(r[i] for r, i in zip(ranges, position))
                self.picture.programs.append(Program(number, place, starts))
                yield starts
            if not place and not is_whole:
                chosen = self._chosen_numbers(prod(counts), boxes=self._num_boxes)

    def _chosen_numbers(self, total: int, *, boxes: int = 0, is_whole: bool = False) -> set[int]:
        """Most of them in a row, the others spread over the rest, the last among them."""
        if is_whole:
            return set(range(total))
        if not boxes:
            return {0}
        most = min(total, self._most.programs, max(FEWEST, self._most.boxes // boxes))
        if most == total:
            return set(range(total))
        near = max(1, int(most * IN_A_ROW))
        far = most - near
        rest = total - near
        return {*range(near), *(near + (i + 1) * rest // far - 1 for i in range(far))}

    @override
    def note_write(self, tensor: torch.Tensor, access: Access) -> None:
        """Nothing: accesses are noted before they happen."""

    def note(self, op: AccessOp, frame: Frame) -> None:
        """One access of the program that runs."""
        shape = op.result.tile.shape if isinstance(op, Load) else op.value.tile.shape
        if (isinstance(op, (Load, Store)) and op.bases is not None) or not self.picture.programs:
            return
        access = resolve_access(op, shape, frame)
        if access is None:
            return
        if op not in self._places:
            self._places[op] = len(self.picture.accesses)
            self.picture.accesses.append(op)
        program = self.picture.programs[-1]
        at = tuple(int(frame.values[arg]) for arg in self._loops[op])
        if not program.steps or program.steps[-1].at != at:
            program.steps.append(Step(at))
        found = list(boxes_of(access, self._places[op]))
        program.steps[-1].boxes += found
        self._num_boxes += len(found)


@dataclass(frozen=True)
class Limit:
    """How much of a launch is recorded."""

    boxes: int = MAX_BOXES
    programs: int = MAX_PROGRAMS
    seconds: float = 10.0


def _enclosing_loops(
    region: Region, outer: tuple[Value, ...] = ()
) -> dict[Operation, tuple[Value, ...]]:
    """Of every op the first indices of the loops around it, from the outermost in."""
    found: dict[Operation, tuple[Value, ...]] = {}
    for op in region.ops:
        found[op] = outer
        own = op.body.args[: op.rank] if isinstance(op, Loop) else ()
        for inner in op.regions():
            found.update(_enclosing_loops(inner, (*outer, *own)))
    return found


def boxes_of(access: Access, number: int) -> Iterator[Box]:
    """The parts of its tensor that an access touches."""
    if isinstance(access, SliceAccess):
        yield _slice_box(access, number)
        return
    lanes = torch.stack([lane.reshape(-1) for lane in access.lanes()])
    distinct = torch.unique(lanes, dim=1)
    along = [torch.unique(lane) for lane in distinct]
    parts = [_runs(values) for values in along]
    is_product = prod(len(values) for values in along) == distinct.shape[1]
    if is_product and prod(map(len, parts)) <= MAX_PARTS:
        for ranges in product(*parts):
            yield Box(number, ranges, prod(length for _, length in ranges))
        return
    around = tuple((int(v[0]), int(v[-1]) - int(v[0]) + 1) for v in along)
    yield Box(number, around, distinct.shape[1])


def _slice_box(access: SliceAccess, number: int) -> Box:
    lengths, firsts = list(access.lengths), [0] * len(access.lengths)
    if access.mask is not None and access.mask.any():
        lanes = access.mask.nonzero()
        low, high = lanes.min(0).values.tolist(), lanes.max(0).values.tolist()
        firsts, lengths = low, [b - a + 1 for a, b in zip(low, high)]
    ranges: list[Range] = []
    elements, seen = 1, set[int]()
    for start, axis, step in access.ranges:
        if axis is None or not step:
            ranges.append((start, 1))
            continue
        ranges.append((start + step * firsts[axis], step * (lengths[axis] - 1) + 1))
        elements *= 1 if axis in seen else lengths[axis]
        seen.add(axis)
    return Box(number, tuple(ranges), elements)


def _runs(values: torch.Tensor) -> list[Range]:
    """Ascending numbers as runs without a gap."""
    runs: list[Range] = []
    for value in values.tolist():
        if runs and value == sum(runs[-1]):
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((value, 1))
    return runs


def record_tiles(
    function: Function,
    arguments: Mapping[str, Any],
    sizes: Mapping[str, int],
    orders: Mapping[int, GridOptions],
    limit: Limit | None = None,
) -> Picture:
    """Run programs of a function for what they touch; ``orders`` is how grids are numbered."""
    recorder = Recorder(function, orders, limit or Limit())
    needed = needed_values(function)
    prepared = replace(
        prepare_function(function), evaluators=_evaluators(function, needed, recorder)
    )
    with torch.no_grad():
        copied = _with_copies(prepared, arguments, needed)
        run_prepared(prepared, copied, sizes, checked=False, sampling=recorder)
    return recorder.picture


def _with_copies(
    prepared: PreparedFunction, arguments: Mapping[str, Any], needed: frozenset[Value]
) -> dict[str, Any]:
    """The arguments with copies of what is stored to: only what decides anything is written."""
    copied = dict(arguments)
    for value in prepared.stored & needed:
        copied[value.name] = arguments[value.name].clone()
    return copied


def _evaluators(
    function: Function, needed: frozenset[Value], recorder: Recorder
) -> dict[type[Operation], Callable[[Any, Frame], Any]]:
    def wrap(kind: type[Operation]) -> Callable[[Any, Frame], Any]:
        usual = EVALUATORS[kind]

        def evaluate(op: Any, frame: Frame) -> Any:
            if isinstance(op, (Load, Store, Atomic)):
                recorder.note(op, frame)
                is_wanted = op.tensor in needed if isinstance(op, Store) else False
            else:
                is_wanted = False
            if is_wanted or any(result in needed for result in op.results):
                return usual(op, frame)
            for result in op.results:
                frame.values[result] = _placeholder(result, frame)
            return None

        return evaluate

    return {kind: wrap(kind) for kind in EVALUATORS if not issubclass(kind, _FLOW)}


def _placeholder(value: Value, frame: Frame) -> Any:
    """A tile of zeros that takes no memory."""
    tile = value.tile
    if not tile.shape and not tile.dtype.is_float:
        return False if tile.dtype.is_bool else 0
    zero = torch.zeros((), dtype=to_torch(tile.dtype), device=frame.device)
    return zero.expand(frame.lengths(tile.shape))


def needed_values(function: Function) -> frozenset[Value]:
    """Values that accesses and control flow depend on, and tensors that they are loaded from."""
    ops = list(walk_function(function))
    needed = {value for op in ops for value in _roots(op)}
    size = -1
    # Until nothing is added: carried values lead back to the end of their loop.
    while len(needed) != size:
        size = len(needed)
        for op in reversed(ops):
            needed.update(_behind(op, needed))
    return frozenset(needed)


def _roots(op: Operation) -> Iterator[Value]:
    if isinstance(op, (Load, Store, Atomic)):
        yield from op.indices
        yield from (v for v in (op.mask, getattr(op, "bases", None)) if v is not None)
    elif isinstance(op, (Grid, Loop)):
        yield from (*op.begins, *op.ends)
        yield from op.steps if isinstance(op, Loop) else ()
    elif isinstance(op, If):
        yield op.condition
    elif isinstance(op, While):
        yield from (*op.condition.yielded, *op.init, *op.body.yielded)
    elif isinstance(op, GroupBarrier):
        yield from op.operand_values()


def _behind(op: Operation, needed: set[Value]) -> Iterator[Value]:
    """What the needed results of an op depend on."""
    if isinstance(op, Loop):
        states = zip(op.results, op.carried, op.init, op.body.yielded)
        for state in states:
            if not needed.isdisjoint(state):
                yield from state
    elif isinstance(op, If):
        for result, first, second in zip(op.results, op.then.yielded, op.otherwise.yielded):
            if result in needed:
                yield from (first, second)
    elif isinstance(op, (Store, Atomic)) and op.tensor in needed:
        yield op.value
    elif not needed.isdisjoint(op.results):
        yield from op.operand_values()
        for region in op.regions():
            yield from region.yielded
