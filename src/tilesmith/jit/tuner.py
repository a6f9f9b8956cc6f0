"""What a kernel asks of a tuner. Kernels are given one; this layer knows none itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tilesmith.schedule.config import Config


class SearchEnd(Protocol):
    """What callers may ask of a search that is over."""

    @property
    def num_tried(self) -> int:
        """Candidates that have an outcome."""
        ...

    @property
    def is_measured(self) -> bool:
        """Whether the Config has a time."""
        ...


@dataclass(frozen=True)
class TuneRequest:
    """How to tune, as the caller of ``autotune`` says."""

    is_forced: bool = True
    """Whether to search even though a winner is stored or Configs are given."""
    budget_s: float | None = None
    keywords: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Settings for this search, and options of its method."""
    on_end: Callable[[SearchEnd], object] | None = None
    """Told how the search ended; also when a stored winner was taken instead."""


@dataclass(frozen=True)
class MultiRequest:
    """How several workloads become one number."""

    request: TuneRequest
    aggregation: str = "geomean"
    relative_to: str | None = None
    cache_tag: str | None = None


class Tuner(Protocol):
    """Chooses Configs. ``bound`` is always a BoundKernel; its module imports this one."""

    @property
    def takes_stored(self) -> bool:
        """Whether a first call takes what an earlier search has stored, without asking further."""
        ...

    def first_config(self, bound: Any, args: tuple[Any, ...]) -> Config | None:
        """For a first call for which nothing is stored: what is measured now; None: nothing."""
        ...

    def tune(self, bound: Any, args: tuple[Any, ...], request: TuneRequest) -> Config | None:
        """The best Config that a search finds; None: no candidate works, and the user knows."""
        ...

    def tune_multi(
        self, cases: Sequence[tuple[Any, tuple[Any, ...]]], request: MultiRequest
    ) -> Config | None:
        """One Config for several bound kernels with their arguments."""
        ...
