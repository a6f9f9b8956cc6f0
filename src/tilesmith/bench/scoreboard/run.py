"""Runs the rows of a scoreboard in parts that fit into so many seconds.

Implementations of an input share a process. On a GPU several inputs are built at the same time, and
whoever is timed has the device alone. A row that failed, or whose process died, is made again
alone, and only that counts: a mistake of one implementation is no failure of its neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import groupby
from math import inf
from operator import attrgetter, methodcaller
from pathlib import Path
from time import monotonic
from typing import Any

from tilesmith.bench.case import Operator, Suite
from tilesmith.bench.economy import is_rival
from tilesmith.bench.implementations import ImplementationKind, preloaded_for
from tilesmith.bench.journal import read_journal
from tilesmith.bench.large_inputs import Estimates, Room
from tilesmith.bench.plan import Job, Options, make_plan
from tilesmith.bench.row import Cause, Owner, Row, Status
from tilesmith.bench.run import (
    Listener,
    SafeListener,
    Supervisor,
    WorkerProcesses,
    file_of_rows,
    kept_rows,
    scratch_folder,
)
from tilesmith.lab.processes.build_pool import BuildOutcome, BuildPool

FUNCTION = "tilesmith.bench.scoreboard.together:answer"
INPUTS_AT_ONCE = {"cpu": 1, "cuda": 6}
"""On a CPU, building one would disturb the times of another."""
TICK_S, FEW_INPUTS = 1.0, 6


def board_inputs(operator: Operator, device: str) -> Sequence[int]:
    """Positions of a small, a usual and a large input of an operator, unless it says which."""
    total = len(operator.inputs_on(device))
    if operator.board and operator.inputs_on(device) is operator.inputs:
        return operator.board
    small, usual = (0, 1) if total <= 3 else (1, 2 if total <= FEW_INPUTS else total // 2)
    return sorted({small, min(usual, total - 1), total - 1})


def is_held_out(input_id: int) -> bool:
    """Whether no default, model or heuristic may ever be fitted to an input: every second one."""
    return input_id % 2 == 1


def plan_board(suite: Suite, options: Options, *, with_tuned: bool) -> tuple[Job, ...]:
    """The jobs of a board; inputs and rivals that were asked for take the place of its own."""
    boards = {one.name: board_inputs(one, options.place) for one in suite.operators}
    is_free = not (options.input_ids or options.num_inputs or options.shard)
    return tuple(
        job
        for job in make_plan(suite, options)
        if (not is_free or job.input_id in boards[job.operator])
        and (with_tuned or job.implementation.kind is not ImplementationKind.TUNED)
        and (options.only or is_rival(job, suite))
    )


def begin_board(jobs: Sequence[Job], path: Path) -> None:
    """Put a file that has all rows aside, as the one that the next run is compared with."""
    if path.exists():
        done = {row.key for row in read_journal(path).rows}
        if all(job.key in done for job in jobs):
            path.replace(path_before(path))


def path_before(path: Path) -> Path:
    """Where the last whole run is kept."""
    return path.with_suffix(f".before{path.suffix}")


@dataclass(frozen=True)
class MeasureTogether:
    """A request for the rows of all jobs, which have one input."""

    jobs: tuple[Job, ...]
    options: Options
    lock: Path
    """Held by all that use the device, by one alone while it is timed."""


@dataclass
class Part:
    """So many seconds, and how long inputs took: what would not fit is not begun."""

    seconds: float = inf
    began: float = field(default_factory=monotonic)
    estimates: Estimates = field(default_factory=Estimates)

    @property
    def left(self) -> float:
        """Seconds until its end."""
        return self.seconds - self.elapsed

    @property
    def elapsed(self) -> float:
        """Seconds since the part began."""
        return monotonic() - self.began


def run_part(
    jobs: Sequence[Job], options: Options, part: Part, listener: Listener | None = None
) -> list[Row]:
    """Rows that are there after this part, in the order of the jobs."""
    with ExitStack() as stack:
        rows = kept_rows(jobs, options)
        for found in _by_input(list(rows.values())):
            part.estimates.note(found[0].operator, sum(row.seconds or 0.0 for row in found))
        write = stack.enter_context(file_of_rows(options))
        board = _Board(
            [job for job in jobs if job.key not in rows],
            options,
            part,
            stack.enter_context(scratch_folder()),
            Room.on(options.place),
        )
        listeners = SafeListener([] if listener is None else [listener])
        for row in board.rows(lambda job: listeners.tell(methodcaller("started", job))):
            rows[row.key] = row
            write(row)
            listeners.tell(methodcaller("finished", row))
    return [rows[job.key] for job in jobs if job.key in rows]


def _by_input(items: Sequence[Any]) -> list[list[Any]]:
    """Jobs or rows that have one input, as they come."""
    place = attrgetter("operator", "input_id", "dtype", "device")
    return [list(found) for _, found in groupby(items, place)]


def _is_final(row: Row) -> bool:
    """Whether neighbours have no part in how it ended: others that raise do so alone too."""
    raised = row.status is Status.FAILED and row.cause is Cause.EXCEPTION
    is_theirs = raised and row.owner is Owner.THEIRS
    return row.status in (Status.OK, Status.UNAVAILABLE) or is_theirs


@dataclass
class _Board:
    """Rows as they are finished, until there are all or the part is over."""

    jobs: Sequence[Job]
    options: Options
    part: Part
    folder: Path
    room: Room
    _again: list[Job] = field(default_factory=list[Job])
    """To be made alone."""

    def rows(self, started: Callable[[Job], object]) -> Iterator[Row]:
        """Those of shared processes first."""
        tuned = [j for j in self.jobs if j.implementation.kind is ImplementationKind.TUNED]
        absent = [job for job in self.jobs if job.problem]
        shared = [job for job in self.jobs if job not in tuned and job not in absent]
        with WorkerProcesses(self.options, self.folder) as processes:
            supervisor = Supervisor(self.options, processes, self.folder)
            yield from map(supervisor.run, absent)
            yield from self._shared_rows(shared, processes, started)
            for job in (*self._again, *(job for job in tuned if job not in absent)):
                if self.part.estimates.of(job.operator) > self.part.left:
                    continue
                started(job)
                yield supervisor.run(job)

    def _shared_rows(
        self, jobs: Sequence[Job], processes: WorkerProcesses, started: Callable[[Job], object]
    ) -> Iterator[Row]:
        groups = {str(number): found for number, found in enumerate(_by_input(jobs))}
        most, waiting = INPUTS_AT_ONCE.get(self.options.place, 1), dict(groups)
        running: dict[str, Sequence[Job]] = {}
        with self._pool(processes, groups.values()) as pool:
            while True:
                key = self.room.next_input(waiting, running.values(), self.part)
                if key is not None and len(running) < most:
                    running[key] = waiting.pop(key)
                    started(running[key][0])
                    self._begin(pool, key, running[key])
                    continue
                if not running:
                    return
                for outcome in pool.wait(TICK_S):
                    found = running.pop(outcome.key)
                    self.part.estimates.note(found[0].operator, outcome.seconds)
                    yield from self._finished(found, outcome)

    def _pool(self, processes: WorkerProcesses, groups: Collection[Sequence[Job]]) -> BuildPool:
        needed = (preloaded_for(job.implementation) for found in groups for job in found)
        return processes.make_pool(
            FUNCTION,
            jobs=INPUTS_AT_ONCE.get(self.options.place, 1),
            timeout_s=max(map(len, groups), default=1) * self.options.timeout_s,
            preload=max(needed, default=(), key=len),
        )

    def _begin(self, pool: BuildPool, key: str, jobs: Sequence[Job]) -> None:
        pool.submit(key, MeasureTogether(tuple(jobs), self.options, self.folder / "device.lock"))

    def _finished(self, jobs: Sequence[Job], outcome: BuildOutcome) -> Iterator[Row]:
        """Rows that ended well; the others are made again."""
        found: list[Row] = outcome.reply if isinstance(outcome.reply, list) else []
        good = {row.key: row for row in found if _is_final(row)}
        for job in jobs:
            if job.key in good:
                yield replace(good[job.key], seconds=outcome.seconds / len(jobs))
            else:
                self._again.append(job)
