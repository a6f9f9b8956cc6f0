"""The interface of search methods: asked for candidates, told what became of them.

A method sees a ``SearchSpace`` and outcomes, never a device or a clock: given the same outcomes in
the same order and the same seed it asks for the same candidates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from tilesmith.schedule.config import Config
from tilesmith.schedule.spec import ConfigSpec
from tilesmith.store.outcome import Candidate, Outcome


@dataclass(frozen=True)
class SearchSpace:
    """Where to search: the Configs of one bound kernel, and good ones to start from."""

    spec: ConfigSpec
    seeds: tuple[Candidate, ...]
    """Ranked, best first: the user's seeds, the default, the model's, those of other shapes."""
    overrides: tuple[tuple[str, object], ...] = ()
    """Keys of a Config that the user has fixed; every candidate has them."""
    predict: Callable[[Config], float | None] | None = None
    """The device model's time in milliseconds, None where it has none; None: there is no model."""


class Search(Protocol):
    """One search. ``ask`` and ``tell`` may be interleaved: outcomes come back in any order."""

    name: str
    """As in the registry and the log, e.g. "DifferentialEvolutionSearch"."""

    def ask(self, count: int) -> Sequence[Candidate]:
        """Up to ``count`` new candidates; none when it must first be told more, or has ended.

        A Config is asked for once: no two candidates of one search are equal.
        """
        ...

    def tell(self, outcomes: Sequence[Outcome]) -> None:
        """What became of candidates asked for before."""

    @property
    def is_finished(self) -> bool:
        """Whether nothing more will be asked for, whatever is told."""
        ...

    @property
    def generation(self) -> int:
        """The number of the generation (or round) that candidates asked for now belong to."""
        ...


SearchMethod = Callable[[SearchSpace, int], Search]
"""Begins a search of one method in a space, with a seed."""
