"""The code of a worker process: one implementation with one input, or one reference.

What an implementation raises is a row. What kills the process is seen by the supervisor, which
finds the stage in the progress that was left behind.
"""

from __future__ import annotations

import os
import resource
import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any, cast

import torch

from tilesmith.bench import job_rows
from tilesmith.bench.case import Arguments, Operator, load_suite
from tilesmith.bench.plan import Job
from tilesmith.bench.reference import Reference, with_types, work_out
from tilesmith.bench.row import Row, Status
from tilesmith.bench.trial import Trial
from tilesmith.lab.workload.loading import synchronize

SHARE = 0.9
"""Of the machine's memory, for a process without a limit of its own."""
GB = 1e9


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
    operator = find_operator(request.job)
    arguments = make_arguments(operator, request.job)
    start = perf_counter()
    reference = work_out(operator, arguments)
    synchronize(request.job.device)
    is_read = reference.is_worth_reading(perf_counter() - start)
    reference.save(request.path, with_results=is_read or not request.can_make_again)
    # An eager form that takes the process down costs the types of its results alone.
    with_types(reference, operator, arguments).save_types(request.path)


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
    operator = find_operator(job)
    row = replace(job_rows.blank_row(job), environment=job_rows.environment(device))
    needed_gb = operator.inputs_on(job.device)[job.input_id].min_memory_gb
    if needed_gb > total_gb(device):
        return job_rows.unavailable(
            row, f"needs {needed_gb:g} GB, there are {total_gb(device):.1f}"
        )
    limit_memory(device, options.memory_limit_gb)
    arguments = make_arguments(operator, job)
    reference = find_reference(request.reference, device, operator, arguments)
    place = (job, options, operator, arguments, reference, row)
    return Trial(
        *place, lambda stage, known: job_rows.Progress(stage, known).save(request.progress)
    )


def find_reference(
    path: Path | None, device: torch.device, operator: Operator, arguments: Arguments
) -> Reference | None:
    """What was left at a path for these arguments; none without a path."""
    if path is None:
        return None
    found = Reference.load(path, device, lambda: work_out(operator, arguments))
    if device.type == "cuda":
        torch.cuda.empty_cache()  # as if none of it had been worked out here
    return found


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


def total_gb(device: torch.device) -> float:
    """Memory of a device; that of the machine for the CPU."""
    if device.type != "cpu":
        return torch.cuda.get_device_properties(device).total_memory / GB
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / GB


def limit_memory(device: torch.device, limit_gb: float) -> None:
    """Limit what this process may have on the CPU; 0: most of the machine's.

    Drivers of GPUs reserve more than there is, so processes that use one are left alone.
    """
    limit = limit_gb or SHARE * total_gb(device) if device.type == "cpu" else float("inf")
    if limit == float("inf"):
        return
    with suppress(OSError, ValueError, OverflowError):
        resource.setrlimit(resource.RLIMIT_DATA, (int(limit * GB), int(limit * GB)))
