"""The code of a shared process: all implementations of one input, timed in turns with each other.

Arguments and reference are made once. What one implementation raises is a row; one that takes the
process down takes all rows with it, and each of them is then made in a process of its own.
"""

from __future__ import annotations

import fcntl
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from time import perf_counter

import torch

from tilesmith.bench import job_rows, reference
from tilesmith.bench.case import Operator
from tilesmith.bench.economy import folder_of_compilers
from tilesmith.bench.implementations import EAGER, Implementation, ImplementationKind
from tilesmith.bench.plan import Job, Options
from tilesmith.bench.reference import Reference
from tilesmith.bench.row import Row, Status
from tilesmith.bench.scoreboard.run import MeasureTogether
from tilesmith.bench.timing import AGAIN, BASELINE, WORK, Timed, make_ready, time_all
from tilesmith.bench.trial import Trial
from tilesmith.frontend.containers import tensors_in
from tilesmith.measure.timer import Work

MUST_BE_ALONE = (ImplementationKind.COMPILED_MAX,)
"""What times candidates while it is built."""


class Phases:
    """Seconds by what is done; a phase ends where the next begins."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._name, self._began = "", perf_counter()

    def begin(self, name: str) -> None:
        """Go on with something else."""
        now = perf_counter()
        if self._name:
            self.seconds[self._name] += now - self._began
        self._name, self._began = name, now

    def shared_by(self, count: int) -> dict[str, float]:
        """Of each of so many."""
        return {name: seconds / count for name, seconds in self.seconds.items()}


@contextmanager
def using_device(lock: Path, phases: Phases, *, alone: bool) -> Iterator[None]:
    """Beside others that use it, or while nobody else does; the lock goes with its process."""
    phases.begin("waiting for the device")
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        phases.begin("")
        yield


def answer(request: MeasureTogether) -> list[Row]:
    """The rows; exceptions are the harness's."""
    job, shared = request.jobs[0], Phases()
    tempfile.tempdir = folder_of_compilers(job.device, request.lock.with_name("compilers"))
    shared.begin("arguments")
    device, operator = torch.device(job.device), reference.find_operator(job)
    reference.limit_memory(device, request.options.memory_limit_gb)
    with using_device(request.lock, shared, alone=False):
        shared.begin("arguments")
        arguments = reference.make_arguments(operator, job)
        shared.begin("reference")
        # Types by a call: without values, PyTorch would import for seconds.
        types = [tensor.dtype for tensor in tensors_in(operator.eager(*arguments))]
        known = replace(reference.work_out(operator, arguments), dtypes=types)
        _leave_room(device)
        shared.begin("")
    trials = _checked_trials(request, operator, arguments, known)
    right = [trial for trial, _ in trials if trial.row.status is Status.OK]
    with using_device(request.lock, shared, alone=True):
        shared.begin("graphs")
        _time_in_turns(right, request.options, shared)
    shared.begin("")
    parts = shared.shared_by(len(trials))
    rows = [replace(trial.row, phases={**own.seconds, **parts}) for trial, own in trials]
    wanted = {job.key for job in request.jobs}
    return [row for row in rows if row.key in wanted]


def _checked_trials(
    request: MeasureTogether, operator: Operator, arguments: tuple[object, ...], known: Reference
) -> list[tuple[Trial, Phases]]:
    """Every implementation built, called and judged; eager is one of them in any case."""
    environment = job_rows.environment(torch.device(request.jobs[0].device))
    made: list[tuple[Trial, Phases]] = []
    for job in with_eager(request.jobs):
        phases = Phases()
        row = replace(job_rows.blank_row(job), environment=environment)
        place = (job, request.options, operator, arguments, known, row)
        is_alone = job.implementation.kind in MUST_BE_ALONE
        with using_device(request.lock, phases, alone=is_alone):
            phases.begin(job_rows.Stage.JUDGE.value)
            trial = Trial(*place, announce=lambda stage, _, own=phases: own.begin(stage.value))
            trial.check()
            _leave_room(torch.device(job.device))
            phases.begin("")
        made.append((trial, phases))
    return made


def _leave_room(device: torch.device) -> None:
    """Give memory back that is not in use: other inputs are on the device too."""
    if device.type == "cuda":
        torch.cuda.empty_cache()


def with_eager(jobs: Sequence[Job]) -> list[Job]:
    """All jobs, and that of the eager form if it is none of them."""
    eager = ImplementationKind.EAGER
    if any(job.implementation.kind is eager for job in jobs):
        return list(jobs)
    return [*jobs, replace(jobs[0], implementation=Implementation(EAGER, eager))]


def _time_in_turns(trials: Sequence[Trial], options: Options, phases: Phases) -> None:
    """Times into the rows of all, each with a copy of itself; nothing without the eager form."""
    kinds = [trial.job.implementation.kind for trial in trials]
    if ImplementationKind.EAGER not in kinds:
        raise RuntimeError("the eager form failed: no speedup can be told")
    eager, device = kinds.index(ImplementationKind.EAGER), trials[0].job.device
    works: dict[str, Work] = {}
    how: list[tuple[str, list[str]]] = []
    for number, trial in enumerate(trials):
        assert trial.work is not None
        copies = {WORK: trial.work, AGAIN: trial.work}
        ready, timer, notes = make_ready(copies, trial.is_right, device, options)
        works |= {f"{number} {name}": work for name, work in ready.items()}
        how.append((timer, notes))
    phases.begin(job_rows.Stage.MEASURE.value)
    timings = time_all(works, device, options)
    phases.begin("judging after timing")
    baseline_error = trials[eager].row.error
    for number, (trial, (timer, notes)) in enumerate(zip(trials, how)):
        own = {name: timings[f"{number} {name}"] for name in (WORK, AGAIN)}
        if number != eager:
            own[BASELINE] = timings[f"{eager} {WORK}"]
            trial.row = replace(trial.row, baseline_error=baseline_error)
        trial.finish(Timed(own, timer, notes))
