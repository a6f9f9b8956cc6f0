"""Lanes take slots of tasks until all tasks have ended, and the finals after the last slot of each.

A lane that is lost gives its slot back, with the time that is left of it: what it has measured is
in the journal, and the next lane goes on from there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf

from tilesmith.fleet.records import Claims, SharedArchive
from tilesmith.fleet.work import FleetError, Lane, LaneReport, Progress, Slot, Task
from tilesmith.schedule.config import Config
from tilesmith.tune.context import Deadline
from tilesmith.tune.result import TuneResult
from tilesmith.tune.trials import NEAR

NUM_FINALISTS = 5
FINALS_SHARE = 0.15
MIN_FINALS_S = 3.0
RESUMED_SHARE = 0.25
"""A slot that another lane goes on with has at least this share of its budget."""
WAIT_S = 0.2
"""How often a waiting thread looks whether to stop."""
Search = Callable[[Slot, Lane, SharedArchive, Claims, Deadline], LaneReport]
Tell = Callable[[str], None]


@dataclass(frozen=True)
class FleetResult:
    """What became of a task."""

    task: Task
    result: TuneResult | None
    """None: no lane came to an end with it."""
    num_measured: int
    """Configs that were timed, by all lanes."""
    lanes: Sequence[str]
    losses: Sequence[str] = ()


class Fleet:
    """Runs tasks on lanes, one thread for each lane. ``tell`` gets a line where something ends."""

    def __init__(
        self, tasks: Sequence[Task], lanes: Sequence[Lane], tell: Tell, search: Search
    ) -> None:
        self._tasks, self._lanes, self._tell, self._search = tasks, lanes, tell, search
        self._changed = threading.Condition()
        self._archives = [SharedArchive(task) for task in tasks]
        defaults = [task.case.bound.config_spec.default_config() for task in tasks]
        self._claims = [Claims(a, d) for a, d in zip(self._archives, defaults)]
        self._slots = [slot for row in self._rows() for slot in row]
        counts = [sum(slot.task is task for slot in self._slots) for task in tasks]
        self._progress = [Progress(count) for count in counts]
        self._running: list[Deadline] = []
        self._errors: list[BaseException] = []
        self.is_stopped = False

    def _rows(self) -> list[list[Slot]]:
        """Slots, first one of each task: as many for a task as its kind has lanes to spare."""
        found: list[list[Slot]] = []
        for task in self._tasks:
            same = [other for other in self._tasks if other.kind == task.kind]
            lanes = [lane for lane in self._lanes if lane.kind == task.kind]
            count = max(1, len(lanes) // len(same))
            found.append([Slot(task, n, task.options.budget_s) for n in range(count)])
        longest = max(map(len, found), default=0)
        return [[row[n] for row in found if n < len(row)] for n in range(longest)]

    def run(self) -> list[FleetResult]:
        """All tasks; Ctrl-C ends searches, whose best is stored. Raises the first error of ours."""
        threads = [threading.Thread(target=self._serve, args=[lane]) for lane in self._lanes]
        for thread in threads:
            thread.daemon = True
            thread.start()
        try:
            for thread in threads:
                while thread.is_alive():
                    thread.join(WAIT_S)
        except KeyboardInterrupt:
            self.stop()
            for thread in threads:
                thread.join()
        if self._errors:
            raise self._errors[0]
        return [self._result(task, progress) for task, progress in zip(self._tasks, self._progress)]

    def stop(self) -> None:
        """End all searches soon."""
        with self._changed:
            self.is_stopped = True
            for deadline in self._running:
                deadline.end()
            self._changed.notify_all()

    def _serve(self, lane: Lane) -> None:
        try:
            while (slot := self._take(lane)) is not None:
                deadline = Deadline(slot.budget_s)
                self._work(slot, lane, deadline)
                if lane.loss and not lane.revive(lambda: self._has_work(lane)):
                    self._tell(f"{lane.name} is left out: {lane.loss}")
                    return
        except BaseException as error:  # told to whoever waits for the threads
            self._errors.append(error)
            self.stop()

    def _take(self, lane: Lane) -> Slot | None:
        """A slot of the lane's kind; waits where lost lanes or finals may still bring one."""
        with self._changed:
            while not self.is_stopped:
                own = [slot for slot in self._slots if slot.task.kind == lane.kind]
                if own:
                    self._slots.remove(own[0])
                    return own[0]
                if not self._has_work(lane):
                    return None
                self._changed.wait(WAIT_S)
        return None

    def _has_work(self, lane: Lane) -> bool:
        """Whether a task of its kind has not ended."""
        pairs = zip(self._tasks, self._progress)
        is_open = any(p.num_open for task, p in pairs if task.kind == lane.kind)
        return is_open and not self.is_stopped

    def _work(self, slot: Slot, lane: Lane, deadline: Deadline) -> None:
        place = next(n for n, task in enumerate(self._tasks) if task is slot.task)
        archive, claims, progress = (
            self._archives[place],
            self._claims[place],
            self._progress[place],
        )
        with self._changed:
            self._running.append(deadline)
        try:
            report = self._search(slot, lane, archive, claims, deadline)
        finally:
            with self._changed:
                self._running.remove(deadline)
        with self._changed:
            progress.reports.append(report)
            if lane.loss:
                progress.losses.append(f"{lane.name}: {lane.loss}")
                self._give_back(slot, claims, deadline)
            else:
                self._end(slot, progress, archive, report)
            self._changed.notify_all()

    def _give_back(self, slot: Slot, claims: Claims, deadline: Deadline) -> None:
        whole = slot.task.options.budget_s if not slot.finalists else slot.budget_s
        left = max(slot.budget_s - deadline.elapsed_s, RESUMED_SHARE * whole)
        claims.release(slot.number)
        self._slots.insert(0, replace(slot, budget_s=left))

    def _end(
        self, slot: Slot, progress: Progress, archive: SharedArchive, report: LaneReport
    ) -> None:
        """After the last of several searches the finals are one more slot."""
        progress.num_open -= 1
        if slot.finalists:
            progress.final = report.result
        elif not progress.num_open and len(progress.reports) > 1 and not self.is_stopped:
            finalists = choose_finalists(progress.reports, slot.task)
            if len(finalists) > 1:
                archive.is_final = True
                budget = max(MIN_FINALS_S, FINALS_SHARE * slot.task.options.budget_s)
                self._slots.insert(0, Slot(slot.task, slot.number, budget, finalists))
                progress.num_open = 1
        if not progress.num_open:
            self._tell(_ending_line(self._result(slot.task, progress)))

    def _result(self, task: Task, progress: Progress) -> FleetResult:
        measured = {outcome.config for r in progress.reports for outcome in r.measured}
        lanes = tuple(dict.fromkeys(report.lane for report in progress.reports))
        return FleetResult(task, _best(progress), len(measured), lanes, tuple(progress.losses))


def _best(progress: Progress) -> TuneResult | None:
    if progress.final is not None and progress.final.is_measured:
        return progress.final
    found = [report.result for report in progress.reports]
    return min(found, key=lambda result: result.ms, default=None)


def choose_finalists(reports: Sequence[LaneReport], task: Task) -> tuple[Config, ...]:
    """The best of all lanes, each told against the default on its own device, and the default.

    Devices of one kind differ a little, and one may be slow: times of two are not compared.
    """
    ratios: dict[Config, float] = {}
    for report in reports:
        basis = report.default_ms or 1.0
        for outcome in report.measured:
            ratio = outcome.time_ms / basis
            ratios[outcome.config] = min(ratio, ratios.get(outcome.config, inf))
    limit = NEAR * min(ratios.values(), default=inf)
    near = [config for config, ratio in ratios.items() if ratio <= limit]
    best = sorted(near, key=lambda config: ratios[config])[:NUM_FINALISTS]
    default = task.case.bound.config_spec.normalize(task.case.bound.config_spec.default_config())
    return tuple(dict.fromkeys([*best, *([default] if default in ratios else [])]))


def _ending_line(found: FleetResult) -> str:
    result, task = found.result, found.task
    ms = f"{result.ms:.4g} ms" if result is not None and result.is_measured else "no result"
    lost = f", {len(found.losses)} lost" if found.losses else ""
    return (
        f"{task.title} on {task.kind.device}: {ms}, {found.num_measured} configs, "
        f"{len(found.lanes)} workers{lost}"
    )


def require_results(found: Sequence[FleetResult]) -> None:
    """Raise where workers were lost before a task had any result."""
    open_tasks = [one for one in found if one.result is None or not one.result.is_measured]
    lost = [loss for one in open_tasks for loss in one.losses]
    if lost:
        names = "; ".join(one.task.title for one in open_tasks)
        reasons = "\n  ".join(dict.fromkeys(lost))
        raise FleetError(
            f"no worker is left for {names}:\n  {reasons}\nwhat was measured is in the journal; "
            "the same command goes on from there"
        )
