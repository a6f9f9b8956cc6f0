"""On a CPU each input is built and timed alone, so what is built there has to be little."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tilesmith.bench.case import Suite
from tilesmith.bench.implementations import ImplementationKind
from tilesmith.bench.plan import Job


def is_rival(job: Job, suite: Suite) -> bool:
    """Whether a job is one of a board's, if nobody says which implementations are.

    On a CPU these are ours, eager, torch.compile and plug-ins: hand-written kernels and backends of
    SDPA are for GPUs, and max-autotune builds for minutes.
    """
    if job.device != "cpu":
        return True
    others = {name for one in suite.operators if one.name == job.operator for name in one.others}
    is_max = job.implementation.kind is ImplementationKind.COMPILED_MAX
    return not is_max and job.implementation.name not in others


def folder_of_compilers(device: str, shared: Path) -> str:
    """Where compilers keep what they make: nothing is found there that another input left.

    But on a CPU: torch.compile translates C++ headers before its first kernel, which takes ten
    times as long as a kernel, and all inputs share these.
    """
    if device != "cpu":
        return tempfile.mkdtemp()
    shared.mkdir(exist_ok=True)
    return str(shared)
