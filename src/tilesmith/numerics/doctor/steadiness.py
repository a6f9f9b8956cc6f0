"""Whether the kernel gives the same bits every time, and what that is known from."""

from __future__ import annotations

from collections.abc import Iterator

from tilesmith.numerics.doctor.causes import Causes
from tilesmith.numerics.doctor.findings import OURS, Examination, Finding, Kind, Scope
from tilesmith.numerics.doctor.races import RaceCheck, order_dependence


def describe_steadiness(examination: Examination, causes: Causes) -> Iterator[Finding]:
    """One statement about the kernel: deterministic, or why not."""
    if causes.races.finding is not None:
        return
    agreement = examination.agreement(OURS, Scope.REPEATS)
    dependence = order_dependence(examination.subject)
    if dependence:
        yield Finding(Kind.ORDER, f"not deterministic: {dependence}", (), OURS)
    elif agreement is not None and agreement.is_same:
        found = "the kernel is deterministic"
        runs = f"{agreement.num_runs} runs agree bit for bit"
        if agreement.num_runs < 2:
            found, runs = "nothing speaks against the kernel being deterministic", "it ran once"
        others = "no program adds floats to elements of another"
        yield Finding(Kind.FINE, found, (runs, _detector_text(causes.races), others), OURS)


def _detector_text(races: RaceCheck) -> str:
    if races.skipped:
        return f"the race detector of the interpreter could not look: {races.skipped}"
    return "the race detector of the interpreter finds nothing"
