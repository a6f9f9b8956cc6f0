"""Summaries of timings against hand-computed figures and known distributions."""

from __future__ import annotations

import random
import statistics
from itertools import combinations

import pytest

from tilesmith.measure.rank_correlation import rank_correlation
from tilesmith.measure.statistics import (
    chance_of_ranks,
    median,
    quantile,
    ratio_interval,
    summarize,
)


def noisy(center: float, count: int, seed: int) -> list[float]:
    generator = random.Random(seed)
    return [center * (1 + 0.05 * generator.gauss(0, 1)) for _ in range(count)]


@pytest.mark.parametrize("count", [1, 2, 3, 10, 101])
def test_median_agrees_with_the_standard_library(count):
    samples = noisy(3.0, count, seed=count)
    assert median(samples) == pytest.approx(statistics.median(samples))


def test_quantiles_interpolate_between_neighbours():
    samples = [4.0, 1.0, 3.0, 2.0]
    assert quantile(samples, 0.0) == 1.0
    assert quantile(samples, 1.0) == 4.0
    assert quantile(samples, 0.5) == 2.5
    assert quantile(samples, 0.2) == pytest.approx(1.6)


def test_quantiles_agree_with_the_standard_library():
    samples = noisy(1.0, 41, seed=2)
    cuts = statistics.quantiles(samples, n=10, method="inclusive")
    assert [quantile(samples, share / 10) for share in range(1, 10)] == pytest.approx(cuts)


def test_no_samples_and_bad_shares_are_refused():
    with pytest.raises(ValueError, match="no samples"):
        median([])
    with pytest.raises(ValueError, match="share"):
        quantile([1.0], 1.5)


def test_infinite_samples_do_not_become_nan():
    assert quantile([1.0, float("inf"), float("inf")], 0.8) == float("inf")


def test_summary_holds_the_marks_and_the_relative_spread():
    summary = summarize([float(value) for value in range(1, 12)])
    assert (summary.median, summary.low, summary.high) == (6.0, 3.0, 9.0)
    assert summary.fastest == 1.0
    assert summary.num_samples == 11
    assert summary.spread == 1.0


def test_a_single_outlier_moves_neither_median_nor_spread_much():
    calm = summarize([1.0] * 20)
    disturbed = summarize([1.0] * 19 + [100.0])
    assert disturbed.median == calm.median
    assert disturbed.spread == calm.spread == 0.0


def test_the_interval_contains_the_true_ratio_about_as_often_as_promised():
    found = [
        ratio_interval(noisy(2.0, 25, 2 * seed), noisy(1.0, 25, 2 * seed + 1)) for seed in range(40)
    ]
    assert sum(interval.low <= 2.0 <= interval.high for interval in found) >= 34


def test_the_interval_is_repeatable_and_holds_its_estimate():
    first = ratio_interval(noisy(2.0, 15, 0), noisy(1.0, 15, 1))
    assert first == ratio_interval(noisy(2.0, 15, 0), noisy(1.0, 15, 1))
    assert first.low <= first.estimate <= first.high


def test_faster_needs_more_than_noise():
    assert ratio_interval(noisy(0.8, 30, 1), noisy(1.0, 30, 2)).high < 1.0
    assert ratio_interval(noisy(1.0, 30, 2), noisy(0.8, 30, 1)).low > 1.0
    assert ratio_interval(noisy(1.0, 30, 3), noisy(1.0, 30, 4)).high >= 1.0


@pytest.mark.parametrize(("num_slow", "num_fast"), [(1, 1), (2, 3), (3, 2), (4, 4), (5, 1)])
def test_chances_of_ranks_are_those_of_counted_arrangements(num_slow: int, num_fast: int) -> None:
    places = range(num_slow + num_fast)
    arrangements = list(combinations(places, num_slow))

    def wins(slow: tuple[int, ...]) -> int:
        return sum(s > f for s in slow for f in places if f not in slow)

    for slow in arrangements:
        fast = [float(place) for place in places if place not in slow]
        as_extreme = sum(wins(other) >= wins(slow) for other in arrangements)
        chance = chance_of_ranks([float(place) for place in slow], fast)
        assert chance == as_extreme / len(arrangements)


def test_rank_correlation():
    assert rank_correlation([1, 2, 3, 4], [10, 20, 30, 4000]) == pytest.approx(1.0)
    assert rank_correlation([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1.0)
    assert rank_correlation([1, 1, 1], [1, 2, 3]) == 0.0
    # With ties: Pearson's correlation of ranks (1, 2.5, 2.5, 4) and (1, 2, 3, 4), from 0.
    assert rank_correlation([1, 2, 2, 3], [1, 2, 3, 4]) == pytest.approx(4.5 / (4.5 * 5) ** 0.5)


def test_rank_correlation_of_noise_is_small():
    rng = random.Random(3)
    noise = [[rng.random() for _ in range(400)] for _ in range(2)]
    assert abs(rank_correlation(*noise)) < 0.15
