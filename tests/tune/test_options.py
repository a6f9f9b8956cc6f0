"""Every setting that means something to the tuner arrives where it is used."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilesmith.jit.typed import wants_search
from tilesmith.schedule.config import Config
from tilesmith.settings import Settings
from tilesmith.tune.options import options_from_settings


def settings(**values: object) -> Settings:
    return Settings.from_environment(values, {})


@pytest.mark.parametrize(("effort", "seconds"), [("quick", 15.0), ("full", 120.0), ("none", 120.0)])
def test_efforts_are_budgets(effort: str, seconds: float):
    assert options_from_settings(settings(autotune_effort=effort)).budget_s == seconds


@pytest.mark.parametrize("name", ["effort", "autotune_effort"])
def test_an_effort_of_none_counts_where_the_call_says_it(name: str):
    assert options_from_settings(settings(), {name: "none"}).budget_s == 0.0
    assert options_from_settings(settings(), {name: "quick"}).budget_s == 15.0
    assert options_from_settings(settings(autotune_budget_seconds=3), {name: "none"}).budget_s == 3


def test_a_budget_wins_over_the_effort_and_the_callers_over_both():
    given = settings(autotune_effort="quick", autotune_budget_seconds=3)
    assert options_from_settings(given).budget_s == 3.0
    assert options_from_settings(given, budget_s=4).budget_s == 4.0


@pytest.mark.parametrize("budget", [-1, float("nan")])
def test_a_budget_is_no_negative_number(budget: float):
    with pytest.raises(ValueError, match="expected 0 or more"):
        options_from_settings(settings(), budget_s=budget)


@pytest.mark.parametrize("budget", ["5", "abc", [1], True])
def test_a_budget_is_a_number(budget: Any):
    with pytest.raises(TypeError, match="expected seconds, a number from 0 on"):
        options_from_settings(settings(), budget_s=budget)


@pytest.mark.parametrize("budget", [np.int64(5), np.float32(5.0), 5])
def test_a_budget_is_any_kind_of_number(budget: Any):
    assert options_from_settings(settings(), budget_s=budget).budget_s == 5.0


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("efort", "effort"),
        ("autotune_logs", "log"),
        ("max_generation", "max_generations"),
        ("metod", "method"),
    ],
)
def test_mistyped_options_are_told_from_a_methods_own(name: str, meant: str):
    with pytest.raises(ValueError, match=rf"no option '{name}'; did you mean .*\b{meant}\b"):
        options_from_settings(settings(), {name: 1})


def test_options_of_a_method_are_left_to_it():
    options = options_from_settings(settings(), {"copies": 3, "wings": 2})
    assert options.method_options == {"copies": 3, "wings": 2}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, False),
        ({"autotune_effort": "quick"}, True),
        ({"force_autotune": True}, True),
        ({"autotune_budget_seconds": 2}, True),
        ({"autotune_effort": "full", "autotune_budget_seconds": 0}, False),
    ],
)
def test_a_first_call_searches_only_when_asked(values: dict[str, object], expected: bool):
    assert wants_search(settings(**values)) is expected


def test_keywords_are_settings_or_options_of_the_method():
    made = options_from_settings(
        settings(),
        {
            "max_generations": 2,
            "autotune_compile_timeout": 7,
            "algorithm": "DifferentialEvolutionSearch",
            "population_size": 4,
            "seed_configs": {"block_sizes": [8]},
            "random_seed": 5,
        },
    )
    assert made.settings.autotune_max_generations == 2
    assert made.settings.autotune_compile_timeout == 7
    assert made.settings.autotuner == "DifferentialEvolutionSearch"
    assert made.method_options == {"population_size": 4}
    assert made.seed_configs == (Config(block_sizes=[8]),)
    assert made.seed == 5


def test_a_bad_value_is_refused_like_in_the_decorator():
    with pytest.raises(ValueError, match="autotune_compile_timeout"):
        options_from_settings(settings(), {"compile_timeout": 0})
    with pytest.raises(TypeError, match="Config or a dict"):
        options_from_settings(settings(autotune_seed_configs=[3]))


def test_the_method_comes_from_the_environment():
    made = Settings.from_environment({}, {"TILESMITH_AUTOTUNER": "PatternSearch"})
    assert options_from_settings(made).settings.autotuner == "PatternSearch"


def test_configs_to_start_from_come_from_the_environment():
    given = {"TILESMITH_AUTOTUNE_SEED_CONFIGS": '[{"block_sizes": [8]}]'}
    made = options_from_settings(Settings.from_environment({}, given))
    assert made.seed_configs == (Config(block_sizes=[8]),)
