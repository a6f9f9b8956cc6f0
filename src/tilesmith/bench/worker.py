"""The code of a worker process: one implementation with one input, or one reference.

What an implementation raises is a row. What kills the process is seen by the supervisor, which
finds the stage in the progress that was left behind.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from time import perf_counter

import torch

from tilesmith.bench import job_rows, reference
from tilesmith.bench.case import Arguments, Operator
from tilesmith.bench.row import Row, Status
from tilesmith.bench.trial import Trial
from tilesmith.lab.workload.loading import synchronize


def answer(request: job_rows.Measure | job_rows.MakeReference) -> Row | None:
    """The row that was asked for; exceptions are the harness's."""
    if isinstance(request, job_rows.Measure):
        # Compilers keep their results here: nothing is found that another implementation left.
        tempfile.tempdir = tempfile.mkdtemp()
        return measure(request)
    save_reference(request)
    return None


def save_reference(request: job_rows.MakeReference) -> None:
    """Work out a reference and leave it for workers."""
    operator = reference.find_operator(request.job)
    arguments = reference.make_arguments(operator, request.job)
    start = perf_counter()
    exact = reference.work_out(operator, arguments)
    synchronize(request.job.device)
    is_read = exact.is_worth_reading(perf_counter() - start)
    exact.save(request.path, with_results=is_read or not request.can_make_again)
    # An eager form that takes the process down costs the types of its results alone.
    reference.with_types(exact, operator, arguments).save_types(request.path)


def measure(request: job_rows.Measure) -> Row:
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


def prepare(request: job_rows.Measure) -> Trial | Row:
    """The trial with its arguments made, or a row that says why there is none."""
    job, options = request.job, request.options
    job_rows.Progress(job_rows.Stage.PREPARE, job_rows.blank_row(job)).save(request.progress)
    device = torch.device(job.device)
    operator = reference.find_operator(job)
    row = replace(job_rows.blank_row(job), environment=job_rows.environment(device))
    needed_gb = operator.inputs_on(job.device)[job.input_id].min_memory_gb
    there_gb = reference.total_gb(device)
    if needed_gb > there_gb:
        return job_rows.unavailable(row, f"needs {needed_gb:g} GB, there are {there_gb:.1f}")
    reference.limit_memory(device, options.memory_limit_gb)
    arguments = reference.make_arguments(operator, job)
    exact = find_reference(request.reference, device, operator, arguments)
    place = (job, options, operator, arguments, exact, row)
    return Trial(
        *place, lambda stage, known: job_rows.Progress(stage, known).save(request.progress)
    )


def find_reference(
    path: Path | None, device: torch.device, operator: Operator, arguments: Arguments
) -> reference.Reference | None:
    """What was left at a path for these arguments; none without a path."""
    if path is None:
        return None
    found = reference.Reference.load(path, device, lambda: reference.work_out(operator, arguments))
    if device.type == "cuda":
        torch.cuda.empty_cache()  # as if none of it had been worked out here
    return found
