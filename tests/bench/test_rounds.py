"""From made-up samples to the fields of a row: which rounds count, and how sure they are."""

from __future__ import annotations

import pytest

from tilesmith.bench.timing import AGAIN, BASELINE, MIN_ROUNDS, WORK, time_fields
from tilesmith.measure.timer import Timing

PLATEAU_MS = (11.97, 11.98, 11.99)
"""What a thread pool takes that is kept from its cores in every call, within 0.1%."""


def timing(samples: list[float], disturbed: str = "") -> Timing:
    """A disturbed sample has a cross."""
    return Timing(tuple(samples), tuple(mark == "x" for mark in disturbed))


def turns(work: Timing, again: Timing, baseline: Timing | None = None) -> dict[str, Timing]:
    made = {WORK: work, AGAIN: again}
    return made if baseline is None else {**made, BASELINE: baseline}


def quiet(ms: float, count: int) -> Timing:
    return timing([ms] * count, "-" * count)


def test_a_steady_but_disturbed_baseline_gives_no_speedup_to_rely_on():
    plateau = timing([*PLATEAU_MS] * 5, "x" * 15)
    found = time_fields(turns(quiet(0.012, 15), quiet(0.014, 15), plateau))
    assert found["baseline_spread"] < 0.001
    assert found["speedup"] == pytest.approx(11.98 / 0.013)
    assert found["is_speedup_disturbed"]
    assert not found["is_disturbed"]
    assert (found["latency_ms"], found["samples"]) == (pytest.approx(0.013), 30)
    assert found["disturbed_samples"] == 15


def test_undisturbed_rounds_alone_count_where_there_are_enough():
    baseline = timing([12.0] * 10 + [0.024] * MIN_ROUNDS, "x" * 10 + "-" * MIN_ROUNDS)
    work = timing([9.0] + [0.012] * (9 + MIN_ROUNDS), "x" + "-" * (9 + MIN_ROUNDS))
    found = time_fields(turns(work, quiet(0.012, 10 + MIN_ROUNDS), baseline))
    assert found["speedup"] == pytest.approx(2.0)
    assert found["baseline_ms"] == 0.024
    assert (found["samples"], found["disturbed_samples"]) == (2 * MIN_ROUNDS, 11)
    assert (found["is_disturbed"], found["is_speedup_disturbed"]) == (False, False)


def test_too_few_undisturbed_rounds_are_shown_and_not_relied_on():
    few = MIN_ROUNDS - 1
    work = timing([0.012] * few + [12.0] * 20, "-" * few + "x" * 20)
    found = time_fields(turns(work, quiet(0.012, few + 20), quiet(0.024, few + 20)))
    assert found["latency_ms"] == 0.012
    assert (found["is_disturbed"], found["is_speedup_disturbed"]) == (True, True)


def test_rounds_must_be_undisturbed_for_all_to_make_a_speedup():
    """Each was left in peace often enough, but never both in one round."""
    work = timing([0.01, 9.0] * 5, "-x" * 5)
    baseline = timing([9.0, 0.02] * 5, "x-" * 5)
    found = time_fields(turns(work, work, baseline))
    assert (found["latency_ms"], found["baseline_ms"]) == (0.01, 0.02)
    assert (found["is_disturbed"], found["is_speedup_disturbed"]) == (False, True)


def test_nothing_undisturbed_leaves_everything_as_it_is():
    every = timing([1.0, 2.0, 3.0], "xxx")
    found = time_fields(turns(every, every, every))
    assert (found["latency_ms"], found["samples"], found["disturbed_samples"]) == (2.0, 6, 9)
    assert (found["is_disturbed"], found["is_speedup_disturbed"]) == (True, True)


@pytest.mark.parametrize(
    ("marks", "expected"), [("-", False), ("x", True), ("-x", False), ("-xx", True), ("--x", False)]
)
def test_of_few_rounds_half_are_enough(marks, expected):
    found = time_fields(turns(timing([1.0] * len(marks), marks), quiet(1.0, len(marks))))
    assert found["is_disturbed"] is expected


def test_samples_that_nobody_looked_at_all_count():
    """Those of a GPU's events: its clock does not run while the host waits."""
    found = time_fields(turns(timing([1.0] * 3), timing([1.0] * 3), timing([2.0] * 3)))
    assert (found["samples"], found["speedup"]) == (6, 2.0)
    assert "disturbed_samples" not in found
    assert (found["is_disturbed"], found["is_speedup_disturbed"]) == (False, False)


def test_what_moves_both_together_is_no_noise_of_a_speedup():
    drift = [1.0, 1.5, 2.0, 3.0, 4.0]
    found = time_fields(turns(timing(drift), timing(drift), timing([2 * ms for ms in drift])))
    assert found["speedup_spread"] == pytest.approx(0.0)
    assert found["spread"] > 0.2
    assert found["baseline_spread"] == pytest.approx((3.0 - 1.5) / 2 / 2.0)


def test_the_spread_of_a_speedup_is_that_of_the_ratios_of_the_rounds():
    # Ratios 1, 2, 3, 4, 5: the middle half from 2 to 4.
    baseline = timing([1.5, 3.0, 4.5, 6.0, 7.5])
    found = time_fields(turns(timing([1.0] * 5), timing([2.0] * 5), baseline))
    assert found["speedup_spread"] == pytest.approx((4.0 - 2.0) / 2 / 3.0)


def test_without_a_baseline_there_is_no_speedup():
    found = time_fields(turns(quiet(1.0, 3), quiet(1.0, 3)))
    assert not {"speedup", "speedup_spread", "baseline_spread"} & set(found)
    assert found["disturbed_samples"] == 0
