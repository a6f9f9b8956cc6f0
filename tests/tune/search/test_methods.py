"""What is particular to each search method."""

from __future__ import annotations

import pytest

from tests.tune.search.landscapes import TIMES, Landscape, run, space_of, spec_of
from tilesmith.exc import InvalidConfig, NotEnoughConfigs
from tilesmith.schedule.config import Config
from tilesmith.store.outcome import Candidate, Outcome
from tilesmith.tune.search.candidate_pool import CandidatePool, SearchSpace, neighbours
from tilesmith.tune.search.classic_searches import (
    DifferentialEvolutionSearch,
    FiniteSearch,
    PatternSearch,
)
from tilesmith.tune.search.methods import METHODS, ModelFirstSearch, find_method, make_method
from tilesmith.tune.search.time_model import TimeModel

SPEC = spec_of("matmul")
SOFTMAX = spec_of("softmax")
EXACT = Landscape(TIMES["matmul"], noise=0.0, failures=0.0)
BLOCKS = [[32, 32, 32], [64, 64, 32], [128, 64, 32]]


def test_model_first_asks_for_seeds_in_order_and_waits_for_the_first_outcome():
    seeds = space_of(SPEC).seeds
    search = ModelFirstSearch(space_of(SPEC), 0)
    assert [candidate.config for candidate in search.ask(len(seeds))] == [s.config for s in seeds]
    assert search.generation == 1
    assert not search.ask(1)
    assert not search.is_finished
    search.tell([EXACT.measure(seeds[0])])
    assert len(search.ask(2)) == 2


def test_model_first_converges_and_goes_on():
    """Convergence is a fact about neighbours: none of the best one's is unknown, or better."""
    landscape = Landscape(TIMES["softmax"], noise=0.0, failures=0.0)
    fixed = (("indexing", "pointer"), ("load_eviction_policies", [""]), ("pid_type", "flat"))
    search = ModelFirstSearch(SearchSpace(SOFTMAX, space_of(SOFTMAX).seeds, fixed), 0)
    pool = CandidatePool(SearchSpace(SOFTMAX, (), fixed), 0)
    outcomes: list[Outcome] = []
    unknown: set[Config] | None = None
    while unknown != set() and len(outcomes) < 100:
        outcomes += run(search, landscape, 4)
        best = min(outcomes, key=lambda outcome: outcome.time_ms)
        unknown = set(neighbours(pool, best.config)) - {outcome.config for outcome in outcomes}
    assert not unknown
    assert not search.is_finished
    assert len(search.ask(3)) == 3


def test_model_first_learns_what_matters():
    """Steps of stages change the time, steps of warps do not."""
    model = TimeModel(SOFTMAX.dimensions(), lambda config: None)
    landscape = Landscape(lambda config: 1.0 + 0.5 * config.num_stages, noise=0.0, failures=0.0)
    default = SOFTMAX.default_config().updated(num_warps=4, num_stages=3)
    varied = [default.updated(num_stages=stages) for stages in (1, 2, 3, 4, 5)]
    varied += [default.updated(num_warps=warps) for warps in (1, 2, 8, 16)]
    for config in varied:
        model.tell(landscape.measure(Candidate(SOFTMAX.normalize(config))))
    keys = [dimension.key for dimension in model.encoder.dimensions]
    expected = dict(zip(keys, model.effects.sizes))
    elsewhere = SOFTMAX.default_config().updated(block_sizes=[8], num_warps=32)
    pair = [SOFTMAX.normalize(elsewhere.updated(num_stages=stages)) for stages in (1, 5)]
    fast, slow = model.forecast(pair).mean
    learned = dict(zip(keys, model.effects.sizes))
    assert learned["num_stages"] > 1.3 * expected["num_stages"]
    assert learned["num_warps"] < 0.8 * expected["num_warps"]
    assert slow - fast > 0.3


def test_model_first_stops_after_its_generations():
    search = ModelFirstSearch(space_of(SPEC), 0, generation_size=4, max_generations=2)
    assert len(run(search, EXACT, 100)) == len(space_of(SPEC).seeds) + 8
    assert search.is_finished


def test_a_corrected_model_prefers_what_was_found_better():
    """The model cannot see the warps, which decide: the correction must find that out."""

    def truth(config):
        return 1.0 + 0.3 * abs(config.num_warps - 8)

    search = ModelFirstSearch(
        SearchSpace(SPEC, space_of(SPEC).seeds, predict=lambda config: 1.0), 0
    )
    run(search, Landscape(truth, noise=0.0, failures=0.0), 40)
    configs = [SPEC.default_config().updated(num_warps=warps) for warps in (1, 8)]
    slow, fast = search.model.forecast(configs).mean
    assert slow - fast > 0.2


def test_differential_evolution_replaces_only_by_better_ones():
    search = DifferentialEvolutionSearch(space_of(SPEC), 0, population_size=8, max_generations=4)
    founders = run(search, EXACT, 16)
    assert search.generation == 1
    assert len(search.population) == 8
    expected = sorted(outcome.time_ms for outcome in founders)[:8]
    assert [member.time_ms for member in search.population] == expected
    mutants = search.ask(8)
    before = [member.time_ms for member in search.population]
    search.tell([EXACT.measure(mutant) for mutant in mutants[:-1]])
    assert search.generation == 1
    after = [member.time_ms for member in search.population]
    assert all(a <= b for a, b in zip(after, before))
    assert not search.ask(1)
    search.tell([EXACT.measure(mutants[-1])])
    assert search.generation == 2


def test_differential_evolution_has_the_size_asked_for():
    search = DifferentialEvolutionSearch(space_of(SPEC), 0, population_size=5, max_generations=3)
    assert len(run(search, EXACT, 1000)) == 2 * 5 + 3 * 5
    assert search.is_finished


def test_pattern_search_climbs_until_nothing_is_gained():
    flat = Landscape(lambda config: 1.0, noise=0.0, failures=0.0)
    search = PatternSearch(space_of(SOFTMAX), 0, initial_population=4, copies=1)
    outcomes = run(search, flat, 1000)
    assert search.is_finished
    assert search.generation == 2
    assert 10 < len(outcomes) < 60


def test_finite_search_needs_two():
    for count in (0, 1):
        with pytest.raises(NotEnoughConfigs):
            FiniteSearch(space_of(SPEC), 0, configs=[Config(block_sizes=BLOCKS[0])] * count)


def test_finite_search_asks_for_each_once_in_order():
    configs = [Config(block_sizes=blocks) for blocks in (*BLOCKS, BLOCKS[0])]
    search = FiniteSearch(space_of(SPEC), 0, configs=configs)
    asked = [candidate.config.block_sizes for candidate in (*search.ask(2), *search.ask(9))]
    assert asked == BLOCKS
    assert search.is_finished


def test_finite_search_reports_configs_that_do_not_fit():
    bad = Config(block_sizes=[3, 3, 3])
    search = FiniteSearch(space_of(SPEC), 0, configs=[bad, Config(block_sizes=BLOCKS[0])])
    assert [config for config, _ in search.rejected] == [bad]
    assert len(search.ask(5)) == 1
    with pytest.raises(InvalidConfig):
        FiniteSearch(space_of(SPEC), 0, configs=[bad, bad])


def test_registry_names_what_it_knows():
    with pytest.raises(ValueError, match="ModelFirstSearch, DifferentialEvolutionSearch"):
        find_method("LLMGuidedSearch")
    with pytest.raises(ValueError, match="'generations'; allowed: population_size"):
        make_method("DifferentialEvolutionSearch", {"generations": 3})


@pytest.mark.parametrize("name", METHODS)
def test_registry_makes_every_method(name):
    options = {"configs": [Config(block_sizes=blocks) for blocks in BLOCKS]}
    search = make_method(name, options if name == "FiniteSearch" else None)(space_of(SPEC), 0)
    assert search.name == name or "has no counterpart" in find_method(name).note
    assert isinstance(search.ask(1)[0], Candidate)
