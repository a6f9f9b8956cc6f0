"""How to tune: everything the tuner takes from Settings and the caller, in one frozen place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tilesmith.schedule.config import Config

EFFORT_SECONDS = {"none": 0.0, "quick": 15.0, "full": 120.0}


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
    regime: str = "cold"
    num_finalists: int = 5
    cache_dir: Path = Path()
    is_cached: bool = True
    """Whether winners are looked up and journal entries recalled."""
    is_forced: bool = False
    """Whether to search even though a winner is known."""
    log_level: int = 20
    has_progress_bar: bool = True
    log_path: Path | None = None
    """Prefix of .csv, .jsonl, .png and .html files about the search."""
