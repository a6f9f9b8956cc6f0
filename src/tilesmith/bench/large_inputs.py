"""Which inputs are begun next: those that the seconds of a part and the device's memory allow.

How long an input takes is told by others of its operator, or else by most of all so far: one that
took a minute to compile is no reason to end a part a minute early. What an input needs of a device
is said beside it; processes that find no room would judge on the host, for minutes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import inf
from typing import Protocol

import torch

from tilesmith.bench.plan import Job
from tilesmith.bench.reference import find_operator, total_gb

LEAST_GB = 8.0
"""Of an input that says nothing: context, workspaces, a reference in float64."""
SHARE = 0.85
"""Of the device's memory."""
MOST = 0.75
"""Of the inputs so far take no longer than one of which nothing is known."""


@dataclass
class Estimates:
    """Seconds of inputs that have run, by operator."""

    longest: dict[str, float] = field(default_factory=dict[str, float])
    _all: list[float] = field(default_factory=list[float])

    def note(self, operator: str, seconds: float) -> None:
        """An input took so long."""
        self.longest[operator] = max(seconds, self.longest.get(operator, 0.0))
        self._all.append(seconds)

    def of(self, operator: str) -> float:
        """Seconds of the next input of an operator; zero where nothing has run."""
        if operator in self.longest or not self._all:
            return self.longest.get(operator, 0.0)
        return sorted(self._all)[int(MOST * (len(self._all) - 1))]


class Time(Protocol):
    """What is left of a part."""

    estimates: Estimates

    @property
    def left(self) -> float:
        """Seconds."""
        ...


@dataclass(frozen=True)
class Room:
    """What processes may take of a device's memory together."""

    total_gb: float = inf

    @classmethod
    def on(cls, place: str) -> Room:
        """That of a device; on a CPU there is one input at a time."""
        return cls() if place == "cpu" else cls(total_gb(torch.device(place)))

    def has(self, needed_gb: float, taken_gb: Iterable[float]) -> bool:
        """Whether an input fits beside others; one alone always does."""
        taken = [max(LEAST_GB, one) for one in taken_gb]
        return not taken or sum(taken) + max(LEAST_GB, needed_gb) <= SHARE * self.total_gb

    def next_input(
        self, waiting: Mapping[str, Sequence[Job]], running: Iterable[Sequence[Job]], time: Time
    ) -> str | None:
        """The first input in order that fits into the time that is left, and beside the others."""
        taken = [needed_gb(jobs[0]) for jobs in running]
        for key, (job, *_) in waiting.items():
            if time.estimates.of(job.operator) <= time.left and self.has(needed_gb(job), taken):
                return key
        return None


@cache
def needed_gb(job: Job) -> float:
    """What the suite says of a job's input."""
    return find_operator(job).inputs_on(job.device)[job.input_id].min_memory_gb
