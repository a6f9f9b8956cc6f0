"""The search methods by name, with the options each takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from tilesmith.tune.search.classic_searches import (
    DifferentialEvolutionSearch,
    FiniteSearch,
    PatternSearch,
    RandomSearch,
)
from tilesmith.tune.search.interface import Search, SearchMethod
from tilesmith.tune.search.model_first import ModelFirstSearch

DEFAULT_METHOD = "ModelFirstSearch"
_MODEL_FIRST_OPTIONS = ("max_seeds", "generation_size", "max_generations")
_LEARNED_OPTIONS = ("initial_population", "copies", "population_size", "crossover_rate")


@dataclass(frozen=True)
class Method:
    """One entry of the table."""

    make: Callable[..., Search]
    options: tuple[str, ...]
    ignored: tuple[str, ...] = ()
    """Options that are accepted, for the sake of existing scripts, and have no effect."""
    note: str = ""
    """What to tell someone who asked for this method."""


def _stand_in(name: str) -> Method:
    note = f"{name} has no counterpart here; {DEFAULT_METHOD} learns from measurements, too"
    return Method(ModelFirstSearch, _MODEL_FIRST_OPTIONS, _LEARNED_OPTIONS, note)


METHODS: Mapping[str, Method] = {
    "ModelFirstSearch": Method(ModelFirstSearch, _MODEL_FIRST_OPTIONS),
    "DifferentialEvolutionSearch": Method(
        DifferentialEvolutionSearch, ("population_size", "max_generations", "crossover_rate")
    ),
    "PatternSearch": Method(PatternSearch, ("initial_population", "copies", "max_generations")),
    "RandomSearch": Method(RandomSearch, ("count",)),
    "FiniteSearch": Method(FiniteSearch, ("configs",)),
    "LFBOPatternSearch": _stand_in("LFBOPatternSearch"),
    "LFBOTreeSearch": _stand_in("LFBOTreeSearch"),
    "DESurrogateHybrid": _stand_in("DESurrogateHybrid"),
}


def find_method(name: str) -> Method:
    """The entry of that name; ValueError listing the names when there is none."""
    if name not in METHODS:
        raise ValueError(f"unknown search method {name!r}; expected one of {', '.join(METHODS)}")
    return METHODS[name]


def make_method(name: str, options: Mapping[str, Any] | None = None) -> SearchMethod:
    """The method with its options; ValueError listing those allowed when one is unknown."""
    method = find_method(name)
    given = dict(options or {})
    unknown = [key for key in given if key not in (*method.options, *method.ignored)]
    if unknown:
        raise ValueError(
            f"{name} has no option {unknown[0]!r}; allowed: {', '.join(method.options)}"
        )
    return partial(method.make, **{key: given[key] for key in given if key in method.options})
