"""Whether a first call searches, by its settings and Configs."""

from __future__ import annotations

from tilesmith.jit.bound_kernel import BoundKernel
from tilesmith.settings import Settings


def searches_at_first_call(bound: BoundKernel) -> bool:
    """Whether a first call measures: several Configs are given, or the settings ask for it."""
    is_given = len(bound.configs) == 1 and not bound.settings.force_autotune
    return not is_given and (len(bound.configs) > 1 or wants_search(bound.settings))


def wants_search(settings: Settings) -> bool:
    """Whether a first call without any Config searches."""
    if settings.autotune_budget_seconds is not None:
        return settings.autotune_budget_seconds > 0.0
    return settings.force_autotune or settings.autotune_effort != "none"
