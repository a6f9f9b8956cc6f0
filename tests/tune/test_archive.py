"""What the store knows of a kernel: measurements count under the judge that they were made with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.tune.kernels import config, make_add
from tilesmith.settings import Settings
from tilesmith.store.outcome import Candidate, Outcome, Verdict
from tilesmith.tune.archive import Archive, judge_text
from tilesmith.tune.context import Case
from tilesmith.tune.options import TuneOptions
from tilesmith.tune.result import StopReason, TuneResult

X = torch.randn(100)


def add_one(x, y):
    return x + y + 1


def add_two(x, y):
    return x + y + 2


JUDGES: dict[str, dict[str, Any]] = {
    "reference": {},
    "none": {"autotune_accuracy_check": False},
    "deterministic": {"deterministic": True},
    "tolerance": {"autotune_baseline_atol": 1e-3},
    "wider": {"autotune_baseline_atol": 1e-2},
    "baseline": {"autotune_baseline_fn": add_one},
    "another": {"autotune_baseline_fn": add_two},
    "check": {"autotune_baseline_accuracy_check_fn": add_one},
}


def archive_of(folder, judge: str) -> Archive:
    bound = make_add().bind((X, X))
    settings = Settings.from_environment({"cache_dir": str(folder), **JUDGES[judge]}, {})
    return Archive([Case(bound, (X, X))], TuneOptions(settings))


@pytest.mark.parametrize("judge", JUDGES)
def test_verdicts_count_under_the_same_judge_and_are_seeds_under_others(tmp_path, judge):
    timed = Outcome(Candidate(config(64), "random"), Verdict.OK, median_ms=1.0)
    archive_of(tmp_path, judge).append(timed)
    for other in JUDGES:
        archive = archive_of(tmp_path, other)
        assert (archive.recall(config(64)) is not None) is (other == judge)
        assert archive.similar_configs() == [config(64)]


def within(tolerance: float) -> Callable[..., bool]:
    return lambda actual, expected: all(abs(a - e) < tolerance for a, e in zip(actual, expected))


def test_checks_with_other_values_inside_are_other_judges():
    def text(check: Callable[..., object]) -> str:
        return judge_text(Settings(autotune_baseline_accuracy_check_fn=check))

    assert text(within(0.1)) == text(within(0.1))
    assert text(within(0.1)) != text(within(0.2))
    assert text(lambda a, e, by=1: a == e) != text(lambda a, e, by=2: a == e)
    assert text(lambda a, e: [x == 1 for x in a]) != text(lambda a, e: [x == 2 for x in a])


def test_the_cache_can_be_left_aside(tmp_path):
    timed = Outcome(Candidate(config(64), "random"), Verdict.OK, median_ms=1.0)
    bound = make_add().bind((X, X))
    settings = Settings.from_environment({"cache_dir": str(tmp_path), "skip_cache": True}, {})
    Archive([Case(bound, (X, X))], TuneOptions(settings)).append(timed)
    kept = archive_of(tmp_path, "reference")
    assert kept.recall(config(64)) is None
    kept.append(timed)
    aside = Archive([Case(bound, (X, X))], TuneOptions(settings))
    assert aside.recall(config(64)) is None
    assert aside.similar_configs() == ()


@pytest.mark.parametrize(
    ("disturbed", "ms", "expected"),
    [
        (0.9, 7.0, 64),
        (0.9, 0.05, 8),
        (0.2, 7.0, 8),
    ],
)
def test_a_busy_machine_replaces_no_faster_winner(tmp_path, disturbed, ms, expected):
    quiet = TuneResult(config(64), StopReason.BUDGET, 0.1)
    archive_of(tmp_path, "reference").commit(quiet)
    archive = archive_of(tmp_path, "reference")
    # The best so far is committed before the finals; they may find another.
    archive.commit(TuneResult(config(16), StopReason.BUDGET, ms, disturbed=disturbed))
    archive.commit(TuneResult(config(8), StopReason.BUDGET, ms + 1e-3, disturbed=disturbed))
    found = archive_of(tmp_path, "reference").find_winner()
    assert found is not None
    assert found.config == config(expected)


def test_a_busy_machine_is_better_than_nothing(tmp_path):
    archive = archive_of(tmp_path, "reference")
    archive.commit(TuneResult(config(16), StopReason.BUDGET, 7.0, disturbed=0.95))
    archive.commit(TuneResult(config(8), StopReason.BUDGET, 7.1, disturbed=0.95))
    found = archive_of(tmp_path, "reference").find_winner()
    assert found is not None
    assert found.config == config(8)


def test_times_that_say_nothing_are_not_kept(tmp_path):
    # The scheduler's own times tell no config from another, however alike they are.
    cases = ((1.0, 189.14, False), (0.5, 189.14, True), (0.95, 0.4, True), (0.95, 189.14, False),
             (1.0, 0.02, False))  # fmt: skip
    for disturbed, spread, is_kept in cases:
        archive = archive_of(tmp_path / f"{disturbed}{spread}", "reference")
        result = TuneResult(config(16), StopReason.BUDGET, 7.0, spread, disturbed=disturbed)
        archive.commit(result)
        assert (archive.find_winner() is not None) is is_kept
