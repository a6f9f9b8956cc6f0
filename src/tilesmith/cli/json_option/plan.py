"""``tilesmith bench --list``: operators, inputs and implementations, as lines or as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tilesmith.bench.plan import Job
from tilesmith.cli.json_option.words import STDOUT, write_json
from tilesmith.cli.output import show
from tilesmith.lab.reports import json_line


def show_plan(jobs: Sequence[Job], place: Path | None) -> int:
    """Print what would run; a file that ``--json`` names is written beside the lines."""
    text = json_line({"jobs": [job_record(job) for job in jobs]})
    show(text if place == STDOUT else "\n".join(list_lines(jobs)))
    write_json(text, place)
    return 0


def job_record(job: Job) -> dict[str, Any]:
    """A job as the rows of a run name it; ``problem`` where it cannot run."""
    known = {
        "operator": job.operator,
        "input_id": job.input_id,
        "input_label": job.input_label,
        "dtype": job.dtype,
        "implementation": job.implementation.name,
        "owner": job.owner.value,
        "device": job.device,
    }
    return known | ({"problem": job.problem} if job.problem else {})


def list_lines(jobs: Sequence[Job]) -> Iterator[str]:
    """Operators with the inputs and implementations that would run; what cannot says why."""
    for name in dict.fromkeys(job.operator for job in jobs):
        mine = [job for job in jobs if job.operator == name]
        yield name
        names = dict.fromkeys(job.implementation.name for job in mine)
        yield f"  implementations: {', '.join(names)}"
        inputs = {(job.input_id, job.input_label, job.dtype): job for job in mine}
        for (position, label, dtype), job in inputs.items():
            why = f"  ({job.problem})" if job.problem else ""
            yield f"  {position:>3}  {label}  {dtype}{why}"
