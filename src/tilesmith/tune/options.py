"""How to tune: TuneOptions, made from the kernel's settings and the keywords of a call.

Settings of Helion's without a meaning here are refused when they are given (docs/tuning.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from numbers import Real
from typing import Any, cast

from tilesmith.schedule.config import Config
from tilesmith.setting_rules import log_levels
from tilesmith.settings import Settings
from tilesmith.tune.search.methods import METHODS

EFFORT_SECONDS = {"none": 0.0, "quick": 15.0, "full": 120.0}
PREFIX = "autotune_"
METHOD_KEYWORDS = ("method", "algorithm")


@dataclass(frozen=True)
class TuneOptions:
    """One search: the settings it goes by, and what they do not say."""

    settings: Settings
    budget_s: float = EFFORT_SECONDS["full"]
    """Wall-clock seconds, starting of processes included."""
    method_options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Keywords of the method, e.g. ``population_size``."""
    seed_configs: Sequence[Config] = ()
    configs: Sequence[Config] = ()
    """When given, only these are measured."""

    @property
    def seed(self) -> int:
        """Of random numbers."""
        return self.settings.autotune_random_seed or 0

    def with_seed(self, seed: int) -> TuneOptions:
        """The same search with other random numbers."""
        return replace(self, settings=replace(self.settings, autotune_random_seed=seed))

    @property
    def build_jobs(self) -> int | None:
        """Builder processes; None: one per core, less one for the runner."""
        settings = self.settings
        return 1 if settings.autotune_precompile is None else settings.autotune_precompile_jobs

    @property
    def log_level(self) -> int:
        """The more talkative of what the search and the topics of logs are set to."""
        level = self.settings.autotune_log_level
        return min(level, log_levels(self.settings.logs).get("autotune", level))


def options_from_settings(
    settings: Settings, given: Mapping[str, Any] | None = None, budget_s: float | None = None
) -> TuneOptions:
    """The options of a search, from the kernel's settings and the keywords of a call.

    Those are settings (``autotune_`` may be left out), the name of a method as ``method`` or
    ``algorithm``, and whatever that method takes.
    """
    settings, method_options = split_keywords(settings, given or {})
    is_said = any(name in (given or {}) for name in ("effort", "autotune_effort"))
    budget_s = choose_budget(settings, is_said=is_said) if budget_s is None else budget_s
    given_s: object = budget_s  # callers are people, whatever types say
    if isinstance(given_s, bool) or not isinstance(given_s, Real):
        raise TypeError(f"budget={budget_s!r}: expected seconds, a number from 0 on")
    budget_s = float(budget_s)
    if not budget_s >= 0.0:
        raise ValueError(f"a search cannot take {budget_s:g} seconds; expected 0 or more")
    seeds = as_configs(settings.autotune_seed_configs)
    return TuneOptions(settings, budget_s, method_options, seeds)


def choose_budget(settings: Settings, *, is_said: bool) -> float:
    """Seconds for a search that was asked for: the budget, else the effort's, else those of full.

    The effort "none" says that nobody has to wait at a first call; who calls ``autotune`` waits,
    unless the call itself says so (``is_said``).
    """
    if settings.autotune_budget_seconds is not None:
        return settings.autotune_budget_seconds
    seconds = EFFORT_SECONDS[settings.autotune_effort]
    return seconds if is_said else seconds or EFFORT_SECONDS["full"]


def split_keywords(settings: Settings, given: Mapping[str, Any]) -> tuple[Settings, dict[str, Any]]:
    """Settings with the keywords that are settings put in, and the other keywords."""
    known = {item.name for item in fields(settings)}
    changes: dict[str, Any] = {}
    rest: dict[str, Any] = {}
    for name, value in given.items():
        if name in METHOD_KEYWORDS:
            changes["autotuner"] = value
        elif name in known or PREFIX + name in known:
            changes[name if name in known else PREFIX + name] = value
        else:
            rest[name] = value
    _check_names(rest, known)
    return Settings(**{**settings.to_dict(), **changes}), rest


def _check_names(names: Iterable[str], settings: Iterable[str]) -> None:
    """Raise for a keyword that looks mistyped; of others methods say which they take."""
    options = {o for method in METHODS.values() for o in (*method.options, *method.ignored)}
    known = options | {name.removeprefix(PREFIX) for name in settings} | set(METHOD_KEYWORDS)
    for name in names:
        near = get_close_matches(name.removeprefix(PREFIX), sorted(known), 2)
        if name not in options and near:
            hint = f"did you mean {' or '.join(near)}?"
            raise ValueError(f"a search has no option {name!r}; {hint}")


def as_configs(given: object) -> tuple[Config, ...]:
    """Configs from one or several Configs or dicts."""
    if given is None:
        return ()
    items = [given] if isinstance(given, Mapping) else list(cast("Sequence[Any]", given))
    for item in items:
        if not isinstance(item, Mapping):
            raise TypeError(f"a Config or a dict is needed, found {type(item).__name__}")
    return tuple(item if isinstance(item, Config) else Config.from_dict(item) for item in items)
