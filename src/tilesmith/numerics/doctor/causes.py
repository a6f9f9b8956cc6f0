"""Everything that is found out about why results of a kernel are off; no judgement yet."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from tilesmith.diagnostics.catalogue import BaseError
from tilesmith.numerics.doctor.cancellation import Cancellation, find_cancellation
from tilesmith.numerics.doctor.findings import OURS, Examination, Finding, Subject
from tilesmith.numerics.doctor.overflow import find_overflow
from tilesmith.numerics.doctor.races import RaceCheck, check_races, find_unsteady
from tilesmith.numerics.doctor.reruns import Reruns, TooSlowError
from tilesmith.numerics.doctor.sensitivity import ErrorSources, find_sources
from tilesmith.numerics.oracle import NoReferenceError
from tilesmith.passes.widen_floats import CannotWidenError

_FAILURES = (BaseError, CannotWidenError, NoReferenceError, TooSlowError, RuntimeError, MemoryError)
"""Of interpreting a kernel in another form: the diagnosis does without."""


@dataclass(frozen=True)
class Causes:
    """What there is to say about a kernel besides its errors."""

    races: RaceCheck
    """By the detector."""
    unsteady: tuple[Finding, ...]
    """By repeated runs."""
    sources: tuple[ErrorSources, ...] = ()
    cancellation: Cancellation = field(default_factory=Cancellation)
    overflow: str = ""
    """The line that first makes an infinity or NaN, where results are such and should not."""
    unknown: str = ""
    """Why sources and cancellation are not known."""

    def worst_source(self, outputs: Collection[str]) -> ErrorSources | None:
        """Of the output whose error is furthest beyond the rounding of its type."""
        off = [s for s in self.sources if s.total > 0.0]
        # Tensors that host code goes on with are not what a user looks at.
        known = [s for s in off if s.output in outputs] or off
        return max(known, key=lambda s: s.total / max(s.of_result, 1e-300), default=None)


def find_causes(examination: Examination) -> Causes:
    """Look for races, and where errors come from."""
    subject = examination.subject
    races = check_races(subject)
    unsteady = tuple(find_unsteady(subject, examination.agreements))
    reason = _why_not(subject)
    if reason:
        return Causes(races, unsteady, unknown=reason)
    try:
        reruns = Reruns(subject)
        is_lost = any(s.lost for s in examination.statistics_of(OURS))
        overflow = find_overflow(reruns) if is_lost else ""
        return Causes(races, unsteady, find_sources(reruns), find_cancellation(reruns), overflow)
    except _FAILURES as error:
        return Causes(races, unsteady, unknown=str(error).partition("\n")[0])


def _why_not(subject: Subject) -> str:
    reference = subject.launch_reference
    if reference.reason or not reference.tensors:
        return reference.reason or "there is no reference"
    if not any(x.native.is_floating_point() for x in reference.tensors.values()):
        return "there are no floats"
    return ""
