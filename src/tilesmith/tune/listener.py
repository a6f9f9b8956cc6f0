"""Who is told about a search while it runs: reports implement this protocol.

The driver calls these methods in its own thread and hands over plain, frozen records. An exception
of a listener is logged and ends the listening, never the search.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Protocol

from tilesmith.lab.listeners import SafeListeners
from tilesmith.store.outcome import Candidate, Outcome, Verdict
from tilesmith.tune.result import Final, TuneResult
from tilesmith.tune.search.interface import Best


@dataclass(frozen=True)
class SearchStart:
    """What is about to be searched."""

    kernel: str
    target: str
    device: str
    method: str
    seed: int
    budget_s: float
    judge: str
    """What results are compared with, in words."""
    judge_reason: str = ""
    """Why that is not the fp64 reference, if so."""
    seeds: tuple[Candidate, ...] = ()
    space_size: float | None = None
    """How many Configs there are to choose from."""
    roofline_ms: float | None = None
    num_known: int = 0
    """Measurements of earlier searches that may be recalled."""
    arguments: str = ""
    """Types and shapes, for headings."""
    meaning: str = ""
    """What times stand for, if they are not those of one set of arguments."""


@dataclass(frozen=True)
class Progress:
    """Where a search stands after an outcome."""

    elapsed_s: float
    budget_s: float
    num_tried: int
    generation: int
    best: Best | None = None
    num_in_flight: int = 0
    """Candidates being built or waiting to be timed."""


@dataclass(frozen=True)
class Generation:
    """Summary of one generation (or round) of the search, for the line of founding logs."""

    number: int
    elapsed_s: float
    num_tried: int
    """In this generation."""
    num_replaced: int
    """How often the best was replaced."""
    counts: Mapping[Verdict, int]
    min_ms: float = inf
    mid_ms: float = inf
    max_ms: float = inf
    best: Best | None = None

    @property
    def num_failed(self) -> int:
        """Candidates without a time."""
        return sum(count for verdict, count in self.counts.items() if not verdict.is_timed)


class Listener(Protocol):
    """Is told about one search."""

    def on_start(self, start: SearchStart) -> None:
        """Before the first candidate."""
        ...

    def on_outcome(self, outcome: Outcome, progress: Progress) -> None:
        """After every candidate."""
        ...

    def on_generation(self, generation: Generation) -> None:
        """After all candidates of a generation."""
        ...

    def on_finals(self, final: Final) -> None:
        """After the finalists were measured side by side."""
        ...

    def on_end(self, result: TuneResult) -> None:
        """At the end, however it came; also when a stored winner was found (then only this)."""
        ...


class SafeListener(SafeListeners[Listener]):
    """A report must never end a search."""

    log = logging.getLogger("tilesmith.autotune")
    failure = "a report of the search failed and is left out"

    def on_start(self, start: SearchStart) -> None:
        """Pass on."""
        self.tell(lambda listener: listener.on_start(start))

    def on_outcome(self, outcome: Outcome, progress: Progress) -> None:
        """Pass on."""
        self.tell(lambda listener: listener.on_outcome(outcome, progress))

    def on_generation(self, generation: Generation) -> None:
        """Pass on."""
        self.tell(lambda listener: listener.on_generation(generation))

    def on_finals(self, final: Final) -> None:
        """Pass on."""
        self.tell(lambda listener: listener.on_finals(final))

    def on_end(self, result: TuneResult) -> None:
        """Pass on."""
        self.tell(lambda listener: listener.on_end(result))
