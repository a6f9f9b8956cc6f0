"""What the store knows of the kernel at hand, and where the outcomes of a search go.

Measurements count under the conditions they were made in, winners besides for what was asked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from math import inf
from types import CodeType, FunctionType
from typing import Any

from tilesmith.jit.tuner import MultiRequest
from tilesmith.schedule.config import Config
from tilesmith.settings import Settings
from tilesmith.store.journal import Journal
from tilesmith.store.key import StoreKey, digest_text, join_keys
from tilesmith.store.lookup import find_winner, make_key, search_overrides, winner_key
from tilesmith.store.outcome import Outcome
from tilesmith.store.winners import Winner, Winners
from tilesmith.tune.context import Case
from tilesmith.tune.options import TuneOptions
from tilesmith.tune.result import TuneResult


class Archive:
    """Journal and winners of one kernel under the conditions of now."""

    def __init__(
        self, cases: Sequence[Case], options: TuneOptions, multi: MultiRequest | None = None
    ) -> None:
        self._cases = cases
        self._options = options
        self._multi = multi
        settings = options.settings
        self._winners = Winners(settings.cache_dir, settings.team_cache)
        if settings.team_cache and not settings.skip_cache:
            # Before the journal is read: what the team has measured counts as well.
            self._winners.has_any(cases[0].bound.definition.name)

    @cached_property
    def _conditions(self) -> StoreKey:
        keys = [make_key(case.bound, case.args) for case in self._cases]
        multi = self._multi
        tag = f"{multi.aggregation} {multi.relative_to} {multi.cache_tag or ''}" if multi else ""
        return join_keys(keys, tag)

    @cached_property
    def key(self) -> StoreKey:
        """What winners of this search are stored under."""
        settings = self._options.settings
        overrides = search_overrides(settings)
        scope = (self._options.configs, overrides, settings.deterministic)
        return winner_key(self._conditions, *scope)

    @cached_property
    def _journal(self) -> Journal:
        """What one judge finds right another may not: verdicts count under the same alone."""
        key = join_keys([self._conditions], judge_text(self._options.settings))
        return Journal(self._options.settings.cache_dir, key)

    @cached_property
    def _known(self) -> dict[Config, Outcome]:
        return {} if self._options.settings.skip_cache else self._journal.recall()

    def find_winner(self) -> Winner | None:
        """The winner of an earlier search with the same toolchain."""
        name = self._cases[0].bound.definition.name
        return find_winner(self._winners, name, lambda: self.key)

    @property
    def num_known(self) -> int:
        """Measurements that may be recalled."""
        return len(self._known)

    def similar_configs(self) -> Sequence[Config]:
        """Good Configs of earlier searches: for these arguments, then for others."""
        if self._options.settings.skip_cache:
            return ()
        winner = self._winners.lookup(self.key)
        first = [] if winner is None else [winner.config]
        settings = self._options.settings
        others = self._journal.similar(settings.autotune_best_available_max_cache_scan)
        found = list(dict.fromkeys([*first, *others]))
        return found[: settings.autotune_best_available_max_configs]

    def recall(self, config: Config) -> Outcome | None:
        """The outcome of an earlier search under the same conditions."""
        return self._known.get(config)

    @property
    def best_ms(self) -> float:
        """The best time among the measurements that may be recalled."""
        return min((outcome.time_ms for outcome in self._known.values()), default=inf)

    def append(self, outcome: Outcome) -> None:
        """Put an outcome into the journal, unless the cache is off."""
        if not self._options.settings.skip_cache:
            self._journal.append(outcome)

    @cached_property
    def _earlier(self) -> Winner | None:
        """What was stored before the search had a result."""
        return self.find_winner()

    def commit(self, result: TuneResult) -> None:
        """Keep the winner, unless times of a busy machine say nothing, or an earlier was faster."""
        if self._options.settings.skip_cache or result.is_meaningless:
            return
        earlier = self._earlier
        is_worse = earlier is not None and earlier.median_ms < result.ms
        if not (result.is_disturbed and is_worse):
            note = f"{result.num_tried} configs in {result.seconds:.1f} s; {result.stop.value}"
            self._winners.commit(self.key, result.config, result.ms, result.spread, note)


def judge_text(settings: Settings) -> str:
    """What results are judged by, where that is not the fp64 reference with its own budget."""
    parts = [] if settings.autotune_accuracy_check else ["unchecked"]
    parts += ["deterministic"] if settings.deterministic else []
    tolerances = {"atol": settings.autotune_baseline_atol, "rtol": settings.autotune_baseline_rtol}
    parts += [f"{name}={value}" for name, value in tolerances.items() if value is not None]
    functions = {
        "baseline": settings.autotune_baseline_fn,
        "check": settings.autotune_baseline_accuracy_check_fn,
    }
    parts += [f"{name} {_function_text(f)}" for name, f in functions.items() if f is not None]
    return ", ".join(parts)


def _function_text(function: Callable[..., Any]) -> str:
    """The same for the same code with the same values inside; else for the same object only."""
    if not isinstance(function, FunctionType):
        return repr(function)
    held = [cell.cell_contents for cell in function.__closure__ or ()]
    values = (function.__defaults__, function.__kwdefaults__, held)
    return digest_text(_code_text(function.__code__), repr(values))


def _code_text(code: CodeType) -> str:
    consts = (_code_text(c) if isinstance(c, CodeType) else repr(c) for c in code.co_consts)
    return digest_text(code.co_code.hex(), repr(code.co_names), *consts)
