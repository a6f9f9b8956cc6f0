"""Who is told about a search while it runs, and the History of all that was told.

The search loop calls these methods in its own thread and hands over plain, frozen records.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, prod
from typing import Any, Protocol

from typing_extensions import override

from tilesmith.lab.reports import SafeListeners
from tilesmith.schedule.config import Config
from tilesmith.schedule.spec import ConfigSpec
from tilesmith.store.outcome import Candidate, Outcome, Verdict
from tilesmith.tune.result import Final, TuneResult

MAX_ITEMS = 6
"""Of a list argument that are shown."""


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

    @property
    def default(self) -> Config | None:
        """The default Config, if it is among the seeds."""
        return next((seed.config for seed in self.seeds if seed.origin == "default"), None)


@dataclass(frozen=True)
class Progress:
    """Where a search stands after an outcome."""

    elapsed_s: float
    budget_s: float
    num_tried: int
    generation: int
    best: Outcome | None = None
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
    best: Outcome | None = None

    @property
    def num_failed(self) -> int:
        """Candidates without a time."""
        return sum(count for verdict, count in self.counts.items() if not verdict.is_timed)


class Listener(Protocol):
    """Is told about one search; one that is derived from this need not listen to everything."""

    def on_start(self, start: SearchStart) -> None:
        """Before the first candidate."""

    def on_outcome(self, outcome: Outcome, progress: Progress) -> None:
        """After every candidate."""

    def on_generation(self, generation: Generation) -> None:
        """After all candidates of a generation."""

    def on_finals(self, final: Final) -> None:
        """After the finalists were measured side by side."""

    def on_end(self, result: TuneResult) -> None:
        """At the end, however it came; also when a stored winner was found (then only this)."""


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


def arguments_text(names: Sequence[str], arguments: Sequence[Any]) -> str:
    """One line: names with types and shapes.

    Example:
        >>> arguments_text(("scale", "biases"), (0.5, [1, None]))
        'scale: 0.5, biases: [1, None]'
    """
    return ", ".join(f"{name}: {_argument_text(value)}" for name, value in zip(names, arguments))


def space_size(spec: ConfigSpec) -> float:
    """How many combinations of choices there are; some of them do not fit together."""
    return prod(float(dimension.fragment.cardinality) for dimension in spec.dimensions())


def _argument_text(value: Any) -> str:
    if hasattr(value, "dtype") and hasattr(value, "stride"):
        dtype = str(value.dtype).removeprefix("torch.")
        strides = "" if value.is_contiguous() else f" with strides {list(value.stride())}"
        return f"{dtype}{list(value.shape)}{strides}"
    if isinstance(value, (list, tuple)):
        listed = [_argument_text(item) for item in value[:MAX_ITEMS]]
        more = ["…"] if len(value) > MAX_ITEMS else []
        return f"[{', '.join(listed + more)}]"
    if callable(value):
        return getattr(value, "__name__", type(value).__name__)
    return repr(value)


@dataclass(frozen=True)
class Trial:
    """One outcome, and its place among all."""

    outcome: Outcome
    number: int
    """Counts from 1."""


@dataclass
class History(Listener):
    """A listener that remembers."""

    start: SearchStart | None = None
    trials: list[Trial] = field(default_factory=list[Trial])
    final: Final | None = None
    result: TuneResult | None = None

    @override
    def on_start(self, start: SearchStart) -> None:
        # Whatever came before belongs to another search.
        self.start, self.trials = start, []
        self.final = self.result = None

    @override
    def on_outcome(self, outcome: Outcome, progress: Progress) -> None:
        self.trials.append(Trial(outcome, len(self.trials) + 1))

    @override
    def on_finals(self, final: Final) -> None:
        self.final = final

    @override
    def on_end(self, result: TuneResult) -> None:
        self.result = result

    @property
    def default(self) -> Config | None:
        """The Config that is taken without a search, if the search knew it."""
        return self.start.default if self.start else None

    @property
    def default_ms(self) -> float | None:
        """Time of the default Config, where it has one; best where the winner got its own."""
        together = time_in_finals(self.default, self.final)
        if together is not None:
            return together
        if self.result and self.result.default_ms is not None:
            return self.result.default_ms
        times = [t.outcome.time_ms for t in self.timed if t.outcome.config == self.default]
        return times[0] if times else None

    @property
    def roofline_ms(self) -> float | None:
        """The time that no schedule can beat."""
        ended = self.result.roofline_ms if self.result else None
        return ended or (self.start.roofline_ms if self.start else None)

    @property
    def timed(self) -> list[Trial]:
        """Trials with a time."""
        return [trial for trial in self.trials if trial.outcome.time_ms < inf]

    @property
    def failed(self) -> list[Trial]:
        """Trials that were rejected and have no time."""
        return [trial for trial in self.trials if trial.outcome.time_ms == inf]


@dataclass
class EndListener(Listener):
    """Tells one function how a search has ended."""

    tell: Callable[[TuneResult], object]

    @override
    def on_end(self, result: TuneResult) -> None:
        self.tell(result)


def time_in_finals(config: Config | None, final: Final | None) -> float | None:
    """The time of a Config where finalists were measured side by side, if it was one of them."""
    standings = final.standings if final else ()
    return next((found.median_ms for found in standings if found.config == config), None)
