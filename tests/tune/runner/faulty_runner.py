"""A runner and a builder that misbehave for chosen candidates, to be started as processes.

Which ones is read from the environment variable ``FAULTS``: a JSON list of records with ``match``
(the candidate's key, or a text in its source or LLVM text), ``fault`` (a name from this module,
which strikes when results are checked; ``build hang`` and ``time hang`` strike earlier or later)
and, for a fault that happens only once, ``marker`` (a file that is made when it has). This module
takes the place of ``tilesmith.tune.runner.main``, its ``build`` that of ``build_program``.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import resource
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from tilesmith.artifacts import Artifact
from tilesmith.tune.jobs import BuildReply, CheckJob, Program, TimeJob
from tilesmith.tune.runner import state
from tilesmith.tune.runner.build import build_program
from tilesmith.tune.runner.launching import Launch, make_launch
from tilesmith.tune.runner.main import main
from tilesmith.tune.runner.state import RunnerState

VARIABLE = "FAULTS"
KEY = re.compile(r"c\d+")


def fault_environment(*faults: dict[str, str]) -> dict[str, str]:
    """What to add to a child's environment; each fault has ``match``, ``fault``, ``marker``."""
    return {VARIABLE: json.dumps(faults)}


def find_fault(program: Program, stage: str) -> str:
    """The name of the fault that a candidate has at a stage; "" for none."""
    for record in json.loads(os.environ.get(VARIABLE, "[]")):
        when, _, fault = f"check {record['fault']}".rpartition(" ")
        is_meant = when.split()[-1] == stage and _is_of(program, record["match"])
        if is_meant and _is_due(record.get("marker", "")):
            return fault
    return ""


def _is_of(program: Program, match: str) -> bool:
    if KEY.fullmatch(match):  # c1 is not c10
        return match == program.key
    texts = (program.key, program.artifact.source, program.artifact.llvm)
    return any(match in text for text in texts)


def _is_due(marker: str) -> bool:
    if not marker:
        return True
    try:
        Path(marker).open("x").close()
    except FileExistsError:
        return False
    return True


def do_nothing() -> None:
    pass


def hang() -> None:
    time.sleep(3600)


def spin() -> None:
    """A hang that holds the interpreter: no signal handler of Python's gets to run."""
    ctypes.PyDLL(None).sleep(3600)


def segfault() -> None:
    ctypes.string_at(0)


def abort() -> None:
    os.abort()


def leave() -> None:
    os._exit(7)


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def out_of_memory() -> None:
    raise torch.OutOfMemoryError("tried to allocate 7.00 GiB")


def exhaust() -> None:
    """Ask the system for more memory than it lets this process have."""
    usual = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), usual[1]))
    try:
        torch.ones(1 << 28)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, usual)


def write_astray() -> None:
    """A store to an address where nothing is."""
    ctypes.memset(1 << 40, 1, 8)


def out_of_resources() -> None:
    raise RuntimeError("too many resources requested for launch")


def lose_device() -> None:
    """As after an illegal memory access: nothing can be done with the device any more."""
    state.is_device_lost = lambda place: True
    raise RuntimeError("CUDA error: an illegal memory access was encountered")


def exception() -> None:
    raise ValueError("an exception of the fault injection")


AT_ONCE: dict[str, Callable[[], None]] = {
    **{f.__name__: f for f in (hang, spin, segfault, abort, leave, kill)},
    **{f.__name__: f for f in (out_of_memory, out_of_resources, lose_device, exception)},
    **{f.__name__: f for f in (exhaust, write_astray)},
}
OF_RESULTS = ("wrong", "nondeterministic", "incomplete", "late")
NUM_CHECKED = 2
"""Runs before a candidate is timed."""


def spoil(launch: Launch, values: dict[str, Any], artifact: Artifact, fault: str) -> Launch:
    """A launch whose results are bad; it is the outputs' memory that changes."""
    count = iter(range(1 << 30))

    def run() -> None:
        before = [values[name].clone() for name in artifact.options["written"]]
        launch.run()
        for name, old in zip(artifact.options["written"], before):
            _spoil(values[name].view(-1)[:1], old.view(-1)[:1], fault, next(count))

    return replace(launch, run=run)


def _spoil(element: torch.Tensor, old: torch.Tensor, fault: str, number: int) -> None:
    if fault == "wrong" or (fault == "late" and number >= NUM_CHECKED):
        element.add_(1 + element.abs())
    elif fault == "incomplete":
        element.copy_(old)
    elif fault == "nondeterministic":
        # The smallest change that there is, different in each run.
        integers = {2: torch.int16, 4: torch.int32, 8: torch.int64}[element.itemsize]
        element.view(integers).bitwise_xor_(number % 2)


class FaultyState:
    """A RunnerState that misbehaves when a chosen candidate is run."""

    def __init__(self) -> None:
        self._state = RunnerState()
        self._programs: dict[str, Program] = {}

    def handle(self, job: Any) -> Any:
        """As of the RunnerState, unless a fault is due."""
        if isinstance(job, CheckJob):
            self._programs[job.program.key] = job.program
            fault = find_fault(job.program, "check")
            state.make_launch = _faulty_launch(fault)  # type: ignore[assignment]
        if isinstance(job, TimeJob):
            for key in job.keys:
                AT_ONCE.get(find_fault(self._programs[key], "time"), do_nothing)()
        return self._state.handle(job)


def _faulty_launch(fault: str) -> Callable[..., Launch]:
    def make(program: Program, values: dict[str, Any], place: Any) -> Launch:
        launch = make_launch(program, values, place)
        if fault in AT_ONCE:
            return replace(launch, run=AT_ONCE[fault])
        return spoil(launch, values, program.artifact, fault) if fault in OF_RESULTS else launch

    return make


def build(program: Program) -> BuildReply:
    """As ``build_program``, unless a fault is due."""
    AT_ONCE.get(find_fault(program, "build"), do_nothing)()
    return build_program(program)


if __name__ == "__main__":
    main(FaultyState().handle)
