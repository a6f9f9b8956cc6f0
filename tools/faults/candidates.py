"""Candidates that misbehave, in a real search with the real runner and builder.

The faults are those of the tuner's own tests. What a GPU would do (its memory is full, an address
is illegal there) is simulated by the errors that torch raises; all else happens as said.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.tune.runner.faulty_runner import fault_environment
from tools.faults import search as trial
from tools.faults.kills import leftovers
from tools.faults.rows import REAL, SIMULATED, Row

GROUP = "candidates"
RUNNER = "tests.tune.runner.faulty_runner"
SETTINGS = {"benchmark_timeout": 4, "autotune_compile_timeout": 8}
"""Seconds; a busy machine takes some for a good candidate, too."""
BUDGET_S = 500.0
"""Runners are started again and again."""


@dataclass(frozen=True)
class Fault:
    """What a candidate does, as the faulty runner names it, and the verdict that it must get."""

    text: str
    name: str
    verdict: str
    how: str = REAL


FAULTS = (
    Fault("result differs after timing", "late", "wrong result"),
    Fault("hangs in its launch", "hang", "hung"),
    Fault("hangs and holds the interpreter", "spin", "hung"),
    Fault("hangs while it is timed", "time hang", "hung"),
    Fault("segfault", "segfault", "crashed"),
    Fault("store to an address where nothing is", "write_astray", "crashed"),
    Fault("abort", "abort", "crashed"),
    Fault("segfault while it is timed", "time segfault", "crashed"),
    Fault("runner killed, as for want of memory", "kill", "crashed"),
    Fault("illegal address on the device", "lose_device", "crashed", SIMULATED),
    Fault("device out of memory", "out_of_memory", "out of memory", SIMULATED),
    Fault("host out of memory", "exhaust", "out of memory"),
    Fault("too few registers on the device", "out_of_resources", "out of resources", SIMULATED),
    Fault("wrong result", "wrong", "wrong result"),
    Fault("a part of the result is not written", "incomplete", "wrong result"),
    Fault("racy result: two runs differ", "nondeterministic", "nondeterministic"),
    Fault("raises", "exception", "run error"),
    Fault("build hangs", "build hang", "build timeout"),
    Fault("build segfaults", "build segfault", "crashed"),
    Fault("build killed, as for want of memory", "build kill", "crashed"),
)
SIZES = (1024, 512, 256, 128, 64, 32, 16, 8, 4, 2, 1)
GOOD = 1
"""Right candidates of each search, the last to be tried."""


def misbehave(root: Path) -> Iterator[Row]:
    """One search for every ten faults."""
    most = len(SIZES) - GOOD
    for start in range(0, len(FAULTS), most):
        yield from _search(root / str(start), FAULTS[start : start + most])


def _search(root: Path, faults: tuple[Fault, ...]) -> Iterator[Row]:
    records = [{"match": f"c{n}", "fault": fault.name} for n, fault in enumerate(faults, 1)]
    sizes = SIZES[: len(faults) + GOOD]
    environment = fault_environment(*records)
    spot = trial.Spot(root, sizes, RUNNER, settings=SETTINGS, environment=environment)
    spot.budget_s = BUDGET_S
    ended = trial.in_fork(spot, trial.search)
    general = leftovers(spot)
    if ended.report is None:
        yield Row(GROUP, "a search", "", (f"it ended with {ended.code}", spot.log[-500:], *general))
        return
    report = ended.report
    general += [] if report["is_right"] else ["the kernel's result is wrong"]
    good = report["verdicts"].get(str(sizes[-1]), "was not tried")
    general += [] if good == "ok" else [f"the right candidate {good}"]
    for fault, size in zip(faults, sizes):
        found = report["verdicts"].get(str(size), "nothing at all")
        problems = [] if found == fault.verdict else [f"{found} instead of {fault.verdict}"]
        text = f"{found}: {report['reasons'].get(str(size), '')}".splitlines()[0][:120]
        yield Row(GROUP, fault.text, text, (*problems, *general), how=fault.how)
        general = []
