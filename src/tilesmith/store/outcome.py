"""What became of a candidate: a verdict with its reason, and a time where it has one.

These records travel between the parts of the tuner and into the journal; they hold plain values.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from math import inf

from tilesmith.schedule.config import Config


class Verdict(str, Enum):
    """How the trial of a candidate ended."""

    OK = "ok"
    """Right, and timed."""
    SLOWER = "slower"
    """Right, and dropped before all its samples because it is shown to be slower than the best."""
    FILTERED = "filtered"
    """Left out by the user's filter."""
    INFEASIBLE = "infeasible"
    """Known before compiling not to fit the device."""
    ORDER_DEPENDENT = "order dependent"
    """Known before compiling to depend on the order of programs, where that is not wanted."""
    BUILD_ERROR = "build error"
    BUILD_TIMEOUT = "build timeout"
    OUT_OF_RESOURCES = "out of resources"
    """The compiler or the device found that it does not fit."""
    OUT_OF_MEMORY = "out of memory"
    WRONG = "wrong result"
    NONDETERMINISTIC = "nondeterministic"
    """Two runs from one state gave different bits."""
    RUN_ERROR = "run error"
    CRASHED = "crashed"
    """The process that built or ran it died, or the device can no longer be used."""
    HUNG = "hung"

    @property
    def is_timed(self) -> bool:
        """Whether there is a time to compare."""
        return self in (Verdict.OK, Verdict.SLOWER)


@dataclass(frozen=True)
class Resources:
    """What a built candidate takes of the device; None where the toolchain does not say."""

    shared_bytes: int | None = None
    registers: int | None = None
    spills: int | None = None


UNKNOWN_RESOURCES = Resources()


@dataclass(frozen=True)
class Candidate:
    """A normalised Config that a search wants to know the time of."""

    config: Config
    origin: str = ""
    """Where it comes from, in words: "default", "model", "generation 3", "journal"."""
    predicted_ms: float | None = None


@dataclass(frozen=True)
class Outcome:
    """The result of trying one candidate."""

    candidate: Candidate
    verdict: Verdict
    reason: str = ""
    """One line, for every verdict but OK."""
    samples_ms: tuple[float, ...] = ()
    median_ms: float = inf
    low_ms: float = inf
    """20th percentile."""
    high_ms: float = inf
    """80th percentile."""
    build_s: float = 0.0
    resources: Resources = UNKNOWN_RESOURCES
    is_recalled: bool = False
    """Whether it was read from the journal rather than measured now."""
    is_disturbed: bool = False
    """Whether others had the cores while it was timed: its time is then the scheduler's."""

    @property
    def config(self) -> Config:
        """The Config that was tried."""
        return self.candidate.config

    @property
    def time_ms(self) -> float:
        """The time a search compares: the median, infinite without one."""
        return self.median_ms if self.verdict.is_timed else inf
