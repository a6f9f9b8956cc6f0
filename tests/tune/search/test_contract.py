"""What every search method keeps to: valid, new, repeatable candidates, whatever it is told."""

from __future__ import annotations

from random import Random

import pytest

from tests.tune.search.landscapes import TIMES, Landscape, run, space_of, spec_of
from tilesmith.exc import InvalidConfig
from tilesmith.schedule.config import Config
from tilesmith.store.outcome import Candidate, Outcome, Verdict
from tilesmith.tune.search.candidate_pool import SearchSpace
from tilesmith.tune.search.methods import make_method

METHODS = {
    "ModelFirstSearch": {"max_seeds": 3},
    "DifferentialEvolutionSearch": {"population_size": 6, "max_generations": 3},
    "PatternSearch": {"initial_population": 8, "copies": 2, "max_generations": 1},
    "RandomSearch": {"count": 25},
}
SPEC = spec_of("matmul", "cuda:80")
LANDSCAPE = Landscape(TIMES["matmul"])
NOTHING_WORKS = Landscape(TIMES["matmul"], failures=1.1)


def _search(name, space=None, seed=0):
    return make_method(name, METHODS[name])(space or space_of(SPEC), seed)


def _configs(outcomes):
    return [outcome.config for outcome in outcomes]


@pytest.mark.parametrize("name", METHODS)
def test_candidates_are_normal_valid_and_new(name):
    configs = _configs(run(_search(name), LANDSCAPE, 20))
    assert len(configs) >= 16
    assert len(set(configs)) == len(configs)
    assert all(SPEC.normalize(config) == config for config in configs)


@pytest.mark.parametrize("name", METHODS)
def test_same_seed_and_outcomes_give_the_same_candidates(name):
    first, second = (_configs(run(_search(name, seed=3), LANDSCAPE, 16)) for _ in range(2))
    assert first == second
    assert first != _configs(run(_search(name, seed=4), LANDSCAPE, 16))


@pytest.mark.parametrize("name", METHODS)
def test_outcomes_may_come_late_and_out_of_order(name):
    search, rng = _search(name), Random(1)
    pending: list[Outcome] = []
    told = 0
    while told < 15 and not search.is_finished:
        asked = search.ask(3)
        pending += map(LANDSCAPE.measure, asked)
        assert asked or pending
        rng.shuffle(pending)
        late, pending = pending[:-1], pending[-1:]
        search.tell(late or pending)
        told += len(late) or len(pending)
        pending = pending if late else []
    assert told >= 15


@pytest.mark.parametrize("name", METHODS)
def test_when_everything_fails_it_goes_on_to_its_end(name):
    outcomes = run(_search(name), NOTHING_WORKS, 25)
    assert len(outcomes) >= 8
    assert not any(outcome.verdict.is_timed for outcome in outcomes)


@pytest.mark.parametrize("name", METHODS)
def test_overrides_are_in_every_candidate(name):
    seeds = space_of(SPEC).seeds
    fixed = (("num_warps", 2), ("block_sizes", [16, 32, 64]), ("indexing", "pointer"))
    search = _search(name, SearchSpace(SPEC, seeds, fixed))
    outcomes = run(search, LANDSCAPE, 20)
    assert len(outcomes) > 5
    for config in _configs(outcomes):
        assert config.num_warps == 2
        assert config.block_sizes == [16, 32, 64]
        assert config.indexing == ["pointer"] * 3


@pytest.mark.parametrize("name", METHODS)
def test_impossible_overrides_are_an_error_at_once(name):
    with pytest.raises(InvalidConfig):
        _search(name, SearchSpace(SPEC, space_of(SPEC).seeds, (("num_wraps", 2),)))


@pytest.mark.parametrize("name", METHODS)
def test_a_space_of_one_config_is_asked_once(name):
    everything = tuple(SPEC.default_config().items())
    space = SearchSpace(SPEC, space_of(SPEC).seeds, everything)
    search = _search(name, space)
    outcomes = run(search, LANDSCAPE, 10)
    assert _configs(outcomes) == [SPEC.default_config()]
    assert not search.ask(4)
    assert search.is_finished


@pytest.mark.parametrize("name", METHODS)
def test_a_small_space_is_searched_without_repetition_and_ends(name):
    spec = spec_of("softmax", "cpu")
    fixed = (("block_sizes", [8]), ("cpu_schedule", "static"))
    search = _search(name, SearchSpace(spec, (), fixed))
    outcomes = run(search, Landscape(lambda config: float(config.cpu_unroll), failures=0), 100)
    configs = _configs(outcomes)
    assert len(set(configs)) == len(configs) <= 12
    assert search.is_finished
    if name != "PatternSearch":
        assert len(configs) == 12
        assert {config.cpu_unroll for config in configs} == {1, 2, 4, 8}


@pytest.mark.parametrize("name", METHODS)
def test_invalid_seeds_are_left_out(name):
    bad = Candidate(Config(block_sizes=[3, 5, 7]), "user")
    good = Candidate(Config(block_sizes=[32, 32, 32]), "user")
    search = _search(name, SearchSpace(SPEC, (bad, good, good)))
    (first,) = search.ask(1)
    assert first.config == SPEC.normalize(good.config)
    assert first.origin == "user"


@pytest.mark.parametrize("name", METHODS)
def test_configs_told_without_being_asked_for_are_not_asked_for(name):
    search = _search(name)
    known = [candidate.config for candidate in _search(name).ask(2)]
    search.tell([Outcome(Candidate(known[0]), Verdict.OK, "", (1.0,), 1.0, 1.0, 1.0)])
    asked = [candidate.config for candidate in search.ask(6)]
    if name == "PatternSearch":  # its population is drawn before anything can be told
        assert known[0] in asked
    else:
        assert known[0] not in asked


@pytest.mark.parametrize("name", METHODS)
def test_predictions_travel_with_candidates(name):
    space = SearchSpace(SPEC, space_of(SPEC).seeds, predict=lambda config: float(config.num_warps))
    asked = _search(name, space).ask(8)
    assert asked
    assert all(candidate.predicted_ms == candidate.config.num_warps for candidate in asked)
