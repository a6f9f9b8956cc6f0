"""Sequential elimination on synthetic noise: the true best stays, few samples are spent."""

from __future__ import annotations

from random import Random

import pytest

from tilesmith.measure.statistics import chance_of_ranks
from tilesmith.tune.trials import Decision, Elimination

RULE = Elimination()
NUM_SIMULATIONS = 400


def noisy(ratio: float, noise: float, rng: Random) -> float:
    """Log-normal noise, and every twentieth sample disturbed by something else on the machine."""
    value = ratio * rng.lognormvariate(0.0, noise)
    return value * rng.uniform(1.2, 3.0) if rng.random() < 0.05 else value


def run(ratio: float, noise: float, rng: Random) -> tuple[Decision, int]:
    candidate: list[float] = []
    best: list[float] = []
    decision = Decision.CONTINUE
    while decision is Decision.CONTINUE:
        repeats = RULE.repeats(len(candidate))
        candidate += [noisy(ratio, noise, rng) for _ in range(repeats)]
        best += [noisy(1.0, noise, rng) for _ in range(repeats)]
        decision = RULE.decide(candidate, best)
    return decision, len(candidate)


@pytest.mark.parametrize("noise", [0.005, 0.03, 0.1])
@pytest.mark.parametrize("ratio", [0.9, 0.98, 1.0])
def test_a_candidate_as_fast_as_the_best_is_almost_never_dropped(ratio: float, noise: float):
    rng = Random(f"{ratio} {noise}")
    decisions = [run(ratio, noise, rng)[0] for _ in range(NUM_SIMULATIONS)]
    assert decisions.count(Decision.DROP) < 0.01 * NUM_SIMULATIONS


@pytest.mark.parametrize(("ratio", "most_samples"), [(1.5, 3.5), (1.2, 4.0), (1.1, 14.0)])
def test_slower_candidates_are_dropped_after_few_samples(ratio: float, most_samples: float):
    rng = Random(1)
    results = [run(ratio, 0.02, rng) for _ in range(NUM_SIMULATIONS)]
    assert sum(decision is Decision.DROP for decision, _ in results) > 0.99 * NUM_SIMULATIONS
    assert sum(count for _, count in results) / NUM_SIMULATIONS < most_samples


def test_one_unlucky_sample_decides_nothing():
    best = [1.0, 1.01, 0.99]
    assert RULE.decide([1.0, 1.0, 50.0], best) is Decision.CONTINUE
    assert RULE.decide([50.0, 1.0, 1.02, 1.0, 0.99, 1.0, 1.01, 1.0], best) is Decision.CONTINUE


def test_a_difference_below_the_margin_is_left_to_the_finals():
    best = [1.0 + 0.0001 * i for i in range(38)]
    assert RULE.decide([1.005 * sample for sample in best], best) is Decision.KEEP
    assert RULE.decide([1.02 * sample for sample in best], best) is Decision.DROP


def test_without_a_best_all_samples_are_taken():
    samples: list[float] = []
    while RULE.decide(samples or [1.0], []) is Decision.CONTINUE:
        samples += [1.0] * RULE.repeats(len(samples))
    assert len(samples) == sum(RULE.batches)


def test_a_hopeless_candidate_needs_confirmation():
    assert RULE.is_hopeless(3.1, 1.0)
    assert not RULE.is_hopeless(2.9, 1.0)
    assert not RULE.is_hopeless(2.9, 0.0)
    assert RULE.confirms_hopeless([2.5, 2.6], 1.0)
    assert not RULE.confirms_hopeless([3.5, 1.1], 1.0)


def test_chance_of_ranks_counts_arrangements():
    # Three samples above three others: one of the 20 orders.
    assert chance_of_ranks([4, 5, 6], [1, 2, 3]) == pytest.approx(1 / 20)
    assert chance_of_ranks([1, 2, 3], [4, 5, 6]) == pytest.approx(1.0)
    # One exchange: two of 20.
    assert chance_of_ranks([3, 5, 6], [1, 2, 4]) == pytest.approx(2 / 20)


def test_exact_and_approximate_chances_agree():
    rng = Random(3)
    slower = [rng.gauss(0.5, 1.0) for _ in range(11)]
    faster = [rng.gauss(0.0, 1.0) for _ in range(11)]
    exact = chance_of_ranks(slower[:10], faster)
    larger = chance_of_ranks(slower[:10], faster * 8)
    assert 0.0 < larger < exact < 1.0
    approximate = chance_of_ranks(slower, faster)
    assert approximate == pytest.approx(chance_of_ranks(slower[:10], faster), abs=0.12)


def test_equal_samples_show_nothing():
    assert chance_of_ranks([1.0] * 8, [1.0] * 8) > 0.4
