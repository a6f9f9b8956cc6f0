"""Interprets grids with their programs at once, interleaved where they touch shared memory."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

import torch

from tilesmith.exc import ProgramsWaitForever
from tilesmith.interpreter.access import SliceAccess
from tilesmith.interpreter.frame import (
    Evaluator,
    Frame,
    PreparedFunction,
    Tile,
    prepare_function,
)
from tilesmith.interpreter.run import EVALUATORS
from tilesmith.interpreter.schedules.clocks import ClockedRaces, positions_of
from tilesmith.interpreter.schedules.turns import Turns, WaitsForEver
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.control_flow import Grid, GroupBarrier, While
from tilesmith.ir.ops.memory import Atomic, Load, Store
from tilesmith.ir.traversal import walk, walk_function
from tilesmith.ir.types import Value

POLICIES: dict[str, Callable[[random.Random, Sequence[int]], int]] = {
    "random": lambda draw, ready: draw.choice(ready),
    "oldest": lambda draw, ready: ready[0],
    "newest": lambda draw, ready: ready[-1],
}
"""Which of the programs that may go on does, of those that began first to those that began last."""


@dataclass(frozen=True)
class Schedule:
    """In what order programs of a grid begin and go on."""

    seed: int = 0
    policy: str = "random"
    num_resident: int = 1 << 30
    """As many as this have begun and not ended at any time."""
    is_fine: bool = False
    """Whether others may go on before each load and store, not only at atomics and barriers."""
    has_tickets: bool = True
    """Whether programs that wait for others are numbered as they begin, as backends do it."""


def scheduled(prepared: PreparedFunction, schedule: Schedule) -> PreparedFunction:
    """The function with grids that run by a schedule; ``races`` of a run means by clocks."""
    run = _ScheduledRun(schedule)
    evaluators: dict[type, Evaluator] = {Grid: run.grid, GroupBarrier: run.group_barrier}
    for kind in (Atomic, Load, Store) if schedule.is_fine else (Atomic,):
        evaluators[kind] = partial(run.access, EVALUATORS[kind])
    return replace(prepared, evaluators={**prepared.evaluators, **evaluators})


def prepare_run(function: Function, *, races: bool) -> PreparedFunction:
    """For a run that looks for races, or not.

    Programs that ask again and again what others have done would never end one after the other.
    """
    prepared = prepare_function(function)
    loops = (op for op in walk_function(function) if isinstance(op, While))
    is_asking = any(isinstance(op, Atomic) for loop in loops for op in _inside(loop))
    return scheduled(prepared, Schedule()) if races and is_asking else prepared


def _inside(loop: While) -> Iterator[Operation]:
    yield from walk(loop.condition)
    yield from walk(loop.body)


class _ScheduledRun:
    """The evaluators of one function, and the programs that run at the moment."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._random = random.Random(schedule.seed)
        self._turns: Turns | None = None
        self._loop_values: list[Value] = []
        """What loops of the grid carry from turn to turn."""
        self._carried: dict[tuple[int, ...], list[Tile | None]] = {}

    def grid(self, op: Grid, frame: Frame) -> None:
        """Run all programs of a grid."""
        starts = self._order(op, frame)
        regions = [region for inner in walk(op.body) for region in inner.regions()]
        self._loop_values = [arg for region in regions for arg in region.args]
        self._carried.clear()
        if frame.races is not None and not isinstance(frame.races, ClockedRaces):
            frame.races = ClockedRaces([frame.values[value] for value in frame.written])
        races = frame.races if isinstance(frame.races, ClockedRaces) else None
        first = races.begin_programs(starts) if races is not None else 0
        programs = [partial(_run_program, op, _program_frame(op, at, frame)) for at in starts]
        choose = partial(POLICIES[self._schedule.policy], self._random)
        self._turns = Turns(programs, self._schedule.num_resident, choose)
        if races is not None:
            self._turns.on_turn = lambda number: races.turn_to(first + number)
        try:
            self._turns.run()
        except WaitsForEver as error:
            raise ProgramsWaitForever(reason=str(error), loc=op.loc) from None
        finally:
            self._turns = None
            if races is not None:
                races.turn_to(None)

    def group_barrier(self, op: GroupBarrier, frame: Frame) -> None:
        """Be counted, and go on when all are there."""
        assert self._turns is not None
        self._turns.pause()
        counts, place = frame.values[op.counts], frame.values[op.place]
        wanted = frame.values[op.arrivals]
        EVALUATORS[GroupBarrier](op, frame)
        self._turns.note_change()
        races = frame.races if isinstance(frame.races, ClockedRaces) else None
        where = positions_of(counts, SliceAccess([place], (), None))
        if races is not None:
            races.release(counts, where)
        reason = f"the program at {frame.program} waits for {wanted} at {op.counts.name}[{place}]"
        self._turns.wait(lambda: int(counts[place]) >= wanted, reason)
        if races is not None:
            races.acquire(counts, where)

    def access(self, evaluate: Evaluator, op: Load | Store | Atomic, frame: Frame) -> Tile | None:
        """Let others go on first; note whether memory has changed."""
        if self._turns is None:  # between grids
            return evaluate(op, frame)
        self._turns.pause()
        if isinstance(op, Load):
            return evaluate(op, frame)
        tensor: torch.Tensor = frame.values[op.tensor]
        before = tensor.clone()
        result = evaluate(op, frame)
        if self._has_gone_on(frame) or not torch.equal(before, tensor):
            self._turns.note_change()
        return result

    def _has_gone_on(self, frame: Frame) -> bool:
        """Whether a program is in another turn of a loop than when it was asked for last.

        One that waits for others carries nothing that changes.
        """
        found = [frame.values.get(value) for value in self._loop_values]
        before = self._carried.get(frame.program)
        self._carried[frame.program] = found
        return before is None or not all(map(_is_same, before, found))

    def _order(self, op: Grid, frame: Frame) -> list[tuple[int, ...]]:
        """Where the tiles of each program start, in the order in which programs begin."""
        ends = [frame.values[end] for end in op.ends]
        steps = [frame.sizes[block] if block else 1 for block in op.blocks]
        ranges = [range(frame.values[b], e, s) for b, e, s in zip(op.begins, ends, steps)]
        # The first axis is the fastest, as in launches.
        starts = [place[::-1] for place in product(*reversed(ranges))]
        is_numbered = any(isinstance(inner, GroupBarrier) for inner in op.body.ops)
        if not (is_numbered and self._schedule.has_tickets):
            self._random.shuffle(starts)
        return starts


def _program_frame(op: Grid, starts: tuple[int, ...], frame: Frame) -> Frame:
    own = Frame(frame.prepared, frame.evaluators, frame.sizes, checked=frame.checked)
    own.values, own.extents = dict(frame.values), dict(frame.extents)
    own.written, own.device, own.races = frame.written, frame.device, frame.races
    own.program = starts
    for arg, block, start, end in zip(op.body.args, op.blocks, starts, op.ends):
        own.values[arg] = start
        if block:
            own.extents[block] = min(frame.sizes[block], frame.values[end] - start)
    return own


def _is_same(one: Tile | None, other: Tile | None) -> bool:
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return torch.equal(one, other)
    return one is other or (isinstance(one, int) and isinstance(other, int) and one == other)


def _run_program(op: Grid, frame: Frame) -> None:
    frame.run(op.body)
