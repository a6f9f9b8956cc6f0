"""How to tune: TuneOptions, made from settings and keywords of a call in this one place.

Settings of Helion's without a meaning here are refused when they are given (docs/tuning.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from numbers import Real
from pathlib import Path
from typing import Any, cast

from tilesmith.schedule.config import Config
from tilesmith.setting_rules import log_levels
from tilesmith.settings import Settings
from tilesmith.tune.search.methods import METHODS

EFFORT_SECONDS = {"none": 0.0, "quick": 15.0, "full": 120.0}
PREFIX = "autotune_"
METHOD_KEYWORDS = ("method", "algorithm")
TABLE: tuple[tuple[str, str], ...] = (
    ("autotune_max_generations", "max_generations"),
    ("autotune_precompile_jobs", "build_jobs"),
    ("autotune_compile_timeout", "build_timeout_s"),
    ("autotune_benchmark_timeout", "run_timeout_s"),
    ("autotune_accuracy_check", "is_checked"),
    ("autotune_baseline_fn", "baseline_fn"),
    ("autotune_baseline_atol", "atol"),
    ("autotune_baseline_rtol", "rtol"),
    ("autotune_baseline_accuracy_check_fn", "accuracy_check_fn"),
    ("autotune_config_filter", "config_filter"),
    ("autotune_config_overrides", "overrides"),
    ("autotune_stop_at_roofline", "stop_at_roofline"),
    ("autotune_log_level", "log_level"),
    ("autotune_progress_bar", "has_progress_bar"),
    ("autotuner", "method"),
    ("deterministic", "is_deterministic"),
    ("autotune_best_available_max_configs", "max_similar"),
    ("autotune_best_available_max_cache_scan", "max_scanned"),
)
"""Settings that are options under another name."""


@dataclass(frozen=True)
class TuneOptions:
    """The options of one search."""

    budget_s: float = EFFORT_SECONDS["full"]
    """Wall-clock seconds, starting of processes included."""
    method: str = "ModelFirstSearch"
    method_options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Keywords of the method, e.g. ``population_size``."""
    seed: int = 0
    seed_configs: Sequence[Config] = ()
    configs: Sequence[Config] = ()
    """When given, only these are measured."""
    overrides: Mapping[str, Any] = field(default_factory=dict[str, Any])
    config_filter: Callable[[Config], Config | bool | None] | None = None
    stop_at_roofline: float | None = None
    """End when the best reaches this share of the roofline (0.97: within 3%)."""
    max_generations: int | None = None
    build_jobs: int | None = None
    """Builder processes; None: one per core, less one for the runner."""
    build_timeout_s: float = 60.0
    run_timeout_s: float = 30.0
    is_checked: bool = True
    """Whether results are judged."""
    is_deterministic: bool = False
    baseline_fn: Callable[..., Any] | None = None
    atol: float | None = None
    rtol: float | None = None
    accuracy_check_fn: Callable[[Any, Any], Any] | None = None
    """Called with (actual, expected) tensors of finalists, in the caller's process."""
    cache_dir: Path = Path()
    is_cached: bool = True
    """Whether winners are looked up and journal entries recalled."""
    is_forced: bool = False
    """Whether to search even though a winner is known."""
    max_similar: int = 20
    """Configs of earlier searches to start from."""
    max_scanned: int = 500
    """Other sets of arguments whose searches are looked at for these."""
    log_level: int = 20
    tells_failures: bool = True
    """Whether the log says which candidates could not be used, and why."""
    has_progress_bar: bool = True
    log_path: Path | None = None
    """Prefix of .csv, .jsonl, .png and .html files about the search."""


def options_from_settings(
    settings: Settings, given: Mapping[str, Any] | None = None, budget_s: float | None = None
) -> TuneOptions:
    """The options of a search, from the kernel's settings and the keywords of a call.

    Those are settings (``autotune_`` may be left out), the name of a method as ``method`` or
    ``algorithm``, and whatever that method takes.
    """
    settings, method_options = split_keywords(settings, given or {})
    values: dict[str, Any] = {option: getattr(settings, name) for name, option in TABLE}
    if settings.autotune_precompile is None:
        values["build_jobs"] = 1
    asked = log_levels(settings.logs).get("autotune", settings.autotune_log_level)
    values["log_level"] = min(asked, settings.autotune_log_level)
    log = settings.autotune_log
    is_said = any(name in (given or {}) for name in ("effort", "autotune_effort"))
    budget_s = choose_budget(settings, is_said=is_said) if budget_s is None else budget_s
    given_s: object = budget_s  # callers are people, whatever types say
    if isinstance(given_s, bool) or not isinstance(given_s, Real):
        raise TypeError(f"budget={budget_s!r}: expected seconds, a number from 0 on")
    budget_s = float(budget_s)
    if not budget_s >= 0.0:
        raise ValueError(f"a search cannot take {budget_s:g} seconds; expected 0 or more")
    return TuneOptions(
        **values,
        budget_s=budget_s,
        method_options=method_options,
        seed=settings.autotune_random_seed or 0,
        seed_configs=as_configs(settings.autotune_seed_configs),
        cache_dir=Path(settings.cache_dir),
        is_cached=not settings.skip_cache,
        is_forced=settings.force_autotune,
        log_path=None if log is None else Path(log),
        tells_failures=not settings.autotune_ignore_errors,
    )


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
