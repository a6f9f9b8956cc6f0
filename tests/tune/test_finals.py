"""The finals: who ties with whom, and which of the tied wins."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from tilesmith.schedule.config import Config
from tilesmith.store.outcome import Candidate, Outcome, Verdict
from tilesmith.tune.trials import choose_finalists, final_of, judge_finals, noise_floor

BIG, SMALL, SLOW = (Config(block_sizes=[size]) for size in (256, 16, 64))


def series(center: float, noise: float, seed: int, count: int = 50) -> list[float]:
    rng = Random(seed)
    return [center * rng.lognormvariate(0.0, noise) for _ in range(count)]


def outcome(size: int, ms: float, verdict: Verdict = Verdict.OK) -> Outcome:
    candidate = Candidate(Config(block_sizes=[size]))
    return Outcome(candidate, verdict, median_ms=ms, low_ms=ms, high_ms=ms)


def block(config: Config) -> int:
    return config.block_sizes[0]


def test_the_simplest_of_the_tied_wins():
    samples = [series(1.0, 0.02, 1), series(1.002, 0.02, 2), series(1.3, 0.02, 3)]
    final = judge_finals([BIG, SMALL, SLOW], [*samples, series(1.0, 0.02, 4)], block)
    assert final.winner.config == SMALL
    assert {standing.config for standing in final.ties} == {BIG, SMALL}
    assert final.standings[-1].config == SLOW


def test_the_fastest_wins_where_the_difference_is_beyond_noise():
    samples = [series(1.0, 0.002, 1), series(1.05, 0.002, 2)]
    final = judge_finals([BIG, SMALL], [*samples, series(1.0, 0.002, 4)], block)
    assert final.winner.config == BIG
    assert len(final.ties) == 1


def test_the_noise_floor_is_what_the_duplicate_shows():
    assert noise_floor([1.0] * 10, [1.05] * 10) == pytest.approx(1 - 1 / 1.05)
    assert noise_floor([1.0] * 10, [1.0] * 10) == 0.0
    assert noise_floor(series(1.0, 0.1, 1, 8), series(1.0, 0.1, 2, 8)) > 0.02


def test_finalists_are_the_fastest_and_dropped_ones_come_last():
    outcomes = [
        outcome(1, 1.3),
        outcome(2, 1.0),
        outcome(4, 1.01, Verdict.SLOWER),
        outcome(8, 1.1),
        outcome(16, 0.5, Verdict.WRONG),
    ]
    assert [o.config.block_sizes for o in choose_finalists(outcomes, 5)] == [[2], [4], [8]]
    assert [o.config.block_sizes for o in choose_finalists(outcomes, 2)] == [[2], [8]]


def test_the_default_is_a_finalist_unless_it_is_far_off():
    default = Candidate(Config(block_sizes=[32]), origin="default")
    for ms, is_finalist in ((38.0, True), (42.0, False)):
        slow = Outcome(default, Verdict.SLOWER, median_ms=ms, low_ms=ms, high_ms=ms)
        found = choose_finalists([outcome(1, 20.0), slow, outcome(2, 21.0)], 1)
        expected = [[1], [32]] if is_finalist else [[1]]
        assert [o.config.block_sizes for o in found] == expected


def test_a_quick_default_is_a_finalist_whatever_its_first_time_was():
    default = Candidate(Config(block_sizes=[32]), origin="default")
    disturbed = Outcome(default, Verdict.SLOWER, median_ms=8.0, low_ms=7.9, high_ms=8.1)
    found = choose_finalists([outcome(1, 0.01), disturbed], 1)
    assert [o.config.block_sizes for o in found] == [[1], [32]]


def test_the_default_is_a_finalist_where_times_overlap():
    default = Candidate(Config(block_sizes=[32]), origin="default")
    slow = Outcome(default, Verdict.OK, median_ms=80.0, low_ms=79.0, high_ms=81.0)
    lucky = replace(outcome(1, 1.0), high_ms=80.0)
    assert [o.config.block_sizes for o in choose_finalists([lucky, slow], 1)] == [[1], [32]]


def test_no_finalists_without_times():
    assert choose_finalists([], 5) == []
    assert choose_finalists([outcome(1, 1.0, Verdict.CRASHED)], 5) == []


def test_a_single_finalist_wins_without_a_race():
    final = final_of(outcome(4, 2.0))
    assert final.winner.config == Config(block_sizes=[4])
    assert final.winner.median_ms == 2.0
    assert len(final.ties) == 1
