"""Verdicts, means and lines of the CPU benchmark."""

from __future__ import annotations

import pytest

from benchmarks.cpu_row import HEADERS, Row, SmallCalls, geomean, noise, summary


def measured(name: str, ratio: float, goal: float | None = 1.0, **others) -> Row:
    return Row(name, "8", goal, 1.0, 2.0, 3.0, ratio, ratio, ratio, 5.0, "GB/s", **others)


@pytest.mark.parametrize(
    ("row", "verdict"),
    [
        (measured("a", 1.0), "ok"),
        (measured("a", 0.999), "miss"),
        (measured("a", 0.1, None), "-"),
        (Row("a", "8", 1.0, problem="wrong: 3 of 4 elements are beyond the budget"), "wrong"),
        (Row("a", "8", 1.0, problem="killed by SIGSEGV"), "failed"),
    ],
)
def test_verdict(row: Row, verdict: str):
    assert row.verdict == verdict


def test_every_row_fills_the_table():
    rows = [measured("a", 1.5, notes=["eager is b"]), Row("a", "8", problem="killed by SIGSEGV")]
    assert {len(row.cells()) for row in rows} == {len(HEADERS)}
    assert "killed by SIGSEGV" in rows[1].cells()[-1]


def test_rows_without_a_goal_do_not_lift_the_mean():
    rows = [measured("a", 0.5), measured("b", 2.0), measured("c", 8.0, None), Row("d", "8", 1.0)]
    assert geomean(rows) == pytest.approx(2.0)
    assert "Goals met: 1 of 3" in summary(rows)
    assert "1.00 (goal 1.2: miss)" in summary(rows)


def test_noise_counts_redone_and_kept_rounds():
    rows = [measured("a", 1.0, num_rounds=5, num_noisy=2, num_noisy_kept=1)]
    assert noise(rows).startswith("Others disturbed 3 rounds; of 5 that count, 1 ")
    assert "1 of 5" in rows[0].cells()


def test_small_calls_are_judged():
    assert "8 us: ok" in SmallCalls(7.9, 12.0, 1.0, None).sentence()
    assert "8 us: miss" in SmallCalls(8.1, 12.0, 1.0, 30.0).sentence()
    assert "killed" in SmallCalls(problem="killed").sentence()
