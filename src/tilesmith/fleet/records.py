"""Journal and winners of a task, shared by the lanes that search it.

What one lane has measured the others recall. Configs that are just being measured are left to the
lane that does it. Everything is in the journal of the driver before it counts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from math import inf
from typing import Any

from typing_extensions import override

from tilesmith.fleet.work import Task
from tilesmith.schedule.config import Config
from tilesmith.store.key import StoreKey
from tilesmith.store.outcome import Outcome, Verdict
from tilesmith.tune.archive import Archive
from tilesmith.tune.result import TuneResult


class SharedArchive(Archive):
    """An archive under a lock, for the kind of device of a task."""

    def __init__(self, task: Task) -> None:
        super().__init__([task.case], task.options)
        self._kind = task.kind
        self._lock = threading.RLock()
        self._live: dict[Config, Outcome] = {}
        """What lanes have found out in this search."""
        self._results: dict[threading.Thread, TuneResult] = {}
        """The latest of each lane."""
        self.is_final = False
        """Whether the next result is that of the finals, which counts whatever its time."""

    @cached_property
    def _conditions(self) -> StoreKey:
        """Of the kind of device that measures: it need not be this machine's."""
        made = Archive._conditions.func(self)  # pyright: ignore[reportPrivateUsage]
        return replace(made, device=self._kind.device)

    def knows(self, config: Config) -> bool:
        """Whether a lane has an outcome for it."""
        with self._lock:
            return config in self._live

    @override
    def recall(self, config: Config) -> Outcome | None:
        with self._lock:
            live = self._live.get(config)
            if live is not None:
                return replace(live, is_recalled=True)
            return super().recall(config)

    @property
    @override
    def best_ms(self) -> float:
        with self._lock:
            live = min((outcome.time_ms for outcome in self._live.values()), default=inf)
            return min(live, super().best_ms)

    @override
    def append(self, outcome: Outcome) -> None:
        if outcome.verdict is Verdict.FILTERED:
            return  # left to another lane
        with self._lock:
            super().append(outcome)
            if outcome.verdict.is_timed and not outcome.is_disturbed:
                self._live[outcome.config] = outcome

    @override
    def commit(self, result: TuneResult) -> None:
        """Keep the best of what lanes have found so far: the driver may be lost before the end."""
        with self._lock:
            if self.is_final:
                super().commit(result)
                return
            self._results[threading.current_thread()] = result
            super().commit(min(self._results.values(), key=lambda found: found.ms))


class Claims:
    """Which slot tries a config: none is measured twice at the same time."""

    def __init__(self, archive: SharedArchive, default: Config) -> None:
        self._archive, self._default = archive, default
        self._owners: dict[Config, int] = {}
        self._lock = threading.Lock()

    def take(self, config: Config, slot: int) -> bool:
        """Whether a slot may try it. The default each tries: its times are told against it."""
        if config == self._default or self._archive.knows(config):
            return True
        with self._lock:
            return self._owners.setdefault(config, slot) == slot

    def release(self, slot: int) -> None:
        """What a lost lane was about to try is free again."""
        with self._lock:
            self._owners = {c: owner for c, owner in self._owners.items() if owner != slot}

    def filter(self, slot: int, users: Callable[..., Any] | None) -> Callable[[Config], Any]:
        """A filter for the configs of a slot; the user's own comes first."""

        def keep(config: Config) -> Any:
            kept: Any = True if users is None else users(config)
            if kept is None or kept is False:
                return None
            wanted = kept if isinstance(kept, Config) else config
            return kept if self.take(wanted, slot) else None

        return keep
