"""Everything a search told, kept for the reports that are made at its end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf

from tilesmith.schedule.config import Config
from tilesmith.store.outcome import Outcome
from tilesmith.tune.listener import Generation, Progress, SearchStart
from tilesmith.tune.result import Final, TuneResult


@dataclass(frozen=True)
class Trial:
    """One outcome, and when it came."""

    outcome: Outcome
    number: int
    """Counts from 1."""
    generation: int
    elapsed_s: float


@dataclass
class History:
    """A listener that remembers."""

    start: SearchStart | None = None
    trials: list[Trial] = field(default_factory=list[Trial])
    generations: list[Generation] = field(default_factory=list[Generation])
    final: Final | None = None
    result: TuneResult | None = None

    def on_start(self, start: SearchStart) -> None:
        """Remember what is searched; whatever came before belongs to another search."""
        self.start = start
        self.trials, self.generations = [], []
        self.final = self.result = None

    def on_outcome(self, outcome: Outcome, progress: Progress) -> None:
        """Remember a trial."""
        number = len(self.trials) + 1
        self.trials.append(Trial(outcome, number, progress.generation, progress.elapsed_s))

    def on_generation(self, generation: Generation) -> None:
        """Remember a generation."""
        self.generations.append(generation)

    def on_finals(self, final: Final) -> None:
        """Remember the finals."""
        self.final = final

    def on_end(self, result: TuneResult) -> None:
        """Remember the result."""
        self.result = result

    @property
    def default(self) -> Config | None:
        """The Config that is taken without a search, if the search knew it."""
        return default_of(self.start) if self.start else None

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
        """Trials without one."""
        return [trial for trial in self.trials if trial.outcome.time_ms == inf]


class EndListener(History):
    """Tells one function how a search has ended."""

    def __init__(self, tell: Callable[[TuneResult], object]) -> None:
        super().__init__()
        self._tell = tell

    def on_end(self, result: TuneResult) -> None:
        """Tell it."""
        self._tell(result)


def default_of(start: SearchStart) -> Config | None:
    """The default Config, if it is among the seeds."""
    return next((seed.config for seed in start.seeds if seed.origin == "default"), None)


def time_in_finals(config: Config | None, final: Final | None) -> float | None:
    """The time of a Config where finalists were measured side by side, if it was one of them."""
    standings = final.standings if final else ()
    return next((found.median_ms for found in standings if found.config == config), None)
