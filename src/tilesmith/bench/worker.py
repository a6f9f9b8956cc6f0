"""The code of a worker process: one implementation with one input, or one reference.

What an implementation raises is a row. What kills the process is seen by the supervisor, which
finds the stage in the progress that was left behind.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch

from tilesmith.bench.case import Arguments, Operator
from tilesmith.bench.environment import environment
from tilesmith.bench.job_rows import blank_row, unavailable
from tilesmith.bench.memory_limit import limit_memory, total_gb
from tilesmith.bench.plan import Job, Options
from tilesmith.bench.progress import Progress, Stage
from tilesmith.bench.reference import Reference, with_types, work_out
from tilesmith.bench.row import Row, Status
from tilesmith.bench.suites import load_suite
from tilesmith.bench.trial import Setting, Trial


@dataclass(frozen=True)
class Measure:
    """A request for a row."""

    job: Job
    options: Options
    progress: Path
    reference: Path | None
    with_baseline: bool


@dataclass(frozen=True)
class MakeReference:
    """A request for a reference, to be saved."""

    job: Job
    path: Path


def answer(request: Measure | MakeReference) -> Row | None:
    """The row that was asked for; exceptions are the harness's."""
    if isinstance(request, Measure):
        # Compilers keep their results here: nothing is found that another implementation left.
        tempfile.tempdir = tempfile.mkdtemp()
        return measure(request)
    operator = find_operator(request.job)
    arguments = make_arguments(operator, request.job)
    reference = work_out(operator, arguments)
    reference.save(request.path)
    # An eager form that takes the process down costs the types of its results alone.
    with_types(reference, operator, arguments).save_types(request.path)
    return None


def measure(request: Measure) -> Row:
    """All stages of one job, each announced before it begins by a file for the supervisor."""
    found = prepare(request)
    if isinstance(found, Row):
        return found
    row = found.check()
    if row.status is Status.OK and request.with_baseline:
        row = found.try_baseline()
    if row.status is Status.OK:
        row = found.measure()
    return row


def prepare(request: Measure) -> Trial | Row:
    """The trial with its arguments made, or a row that says why there is none."""
    job, options = request.job, request.options
    Progress(Stage.PREPARE, blank_row(job)).save(request.progress)
    device = torch.device(job.device)
    operator = find_operator(job)
    row = replace(blank_row(job), environment=environment(device))
    needed_gb = operator.inputs_on(job.device)[job.input_id].min_memory_gb
    if needed_gb > total_gb(device):
        return unavailable(row, f"needs {needed_gb:g} GB, there are {total_gb(device):.1f}")
    limit_memory(device, options.memory_limit_gb)
    arguments = make_arguments(operator, job)
    path = request.reference
    reference = Reference.load(path, device) if path is not None else None
    return Trial(
        Setting(job, options, operator, arguments, reference),
        row,
        lambda stage, known: Progress(stage, known).save(request.progress),
    )


def find_operator(job: Job) -> Operator:
    """The operator of a job."""
    return next(item for item in load_suite(job.suite).operators if item.name == job.operator)


def make_arguments(operator: Operator, job: Job) -> Arguments:
    """The arguments of a job, on its device and in its type."""
    chosen = operator.inputs_on(job.device)[job.input_id]
    made: Any = chosen.make(torch.device(job.device), getattr(torch, job.dtype))
    if not isinstance(made, (tuple, list)):
        raise TypeError(
            f"make() of input {chosen.label} returned {type(made).__name__}, expected a tuple"
        )
    return tuple(cast("Arguments", made))
