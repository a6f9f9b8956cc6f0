"""How near to the best known each method comes, with few evaluations, noise and failures."""

from __future__ import annotations

from functools import cache

import pytest

from tests.tune.search.landscapes import (
    TIMES,
    Landscape,
    best_config_ms,
    best_of_random,
    rough_model,
    run,
    space_of,
    spec_of,
)
from tilesmith.tune.search.methods import make_method

KERNELS = ["matmul", "softmax"]


@cache
def _spec(name):
    return spec_of(name)


@cache
def _reference_ms(name):
    return best_of_random(_spec(name), Landscape(TIMES[name]), 500)


def _search_ms(method, name, evaluations, *, options=None, predict=None, seed=0):
    landscape = Landscape(TIMES[name])
    search = make_method(method, options)(space_of(_spec(name), predict), seed)
    outcomes = run(search, landscape, evaluations)
    assert len(outcomes) <= evaluations
    return best_config_ms(outcomes, landscape)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", KERNELS)
def test_model_first_needs_60_evaluations(name, seed):
    predict = rough_model(TIMES[name])
    found = _search_ms("ModelFirstSearch", name, 60, predict=predict, seed=seed)
    assert found <= 1.05 * _reference_ms(name)


@pytest.mark.parametrize("name", KERNELS)
def test_model_first_does_without_a_model(name):
    assert _search_ms("ModelFirstSearch", name, 60) <= 1.05 * _reference_ms(name)


def test_model_first_survives_a_model_that_is_upside_down():
    found = _search_ms("ModelFirstSearch", "matmul", 60, predict=lambda c: 1 / TIMES["matmul"](c))
    assert found <= 1.10 * _reference_ms("matmul")


@pytest.mark.parametrize("name", KERNELS)
def test_differential_evolution_comes_close(name):
    options = {"population_size": 20, "max_generations": 12}
    found = _search_ms("DifferentialEvolutionSearch", name, 280, options=options)
    assert found <= 1.08 * _reference_ms(name)


@pytest.mark.parametrize("name", KERNELS)
def test_pattern_search_comes_close(name):
    options = {"initial_population": 30, "copies": 2, "max_generations": 5}
    assert _search_ms("PatternSearch", name, 250, options=options) <= 1.05 * _reference_ms(name)


def test_model_first_beats_random_search_at_the_same_cost():
    found = [_search_ms("ModelFirstSearch", "matmul", 40, seed=seed) for seed in range(2)]
    random = [_search_ms("RandomSearch", "matmul", 40, seed=seed) for seed in range(2)]
    assert sum(found) < sum(random)
