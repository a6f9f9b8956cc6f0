"""Averages: geometric, over what ran only, with counts."""

from __future__ import annotations

from dataclasses import replace
from statistics import geometric_mean

import pytest

from tests.bench.made_up_rows import disturbed_row, fail, make_row, make_rows
from tilesmith.bench.row import (
    Average,
    Cause,
    Owner,
    Status,
    average_speedup,
    average_speedups,
    by_operator,
    disturbed_rows,
    failures,
    geomean,
    implementation_names,
)


def test_the_mean_is_geometric():
    assert geomean([0.5, 2.0, 3.0]) == pytest.approx(geometric_mean([0.5, 2.0, 3.0]))
    assert geomean([]) is None


def test_a_failure_lowers_the_count_and_not_the_mean():
    rows = [make_row(speedup=2.0), fail(make_row(), Cause.CRASH, ""), make_row(speedup=8.0)]
    found = average_speedup(rows)
    assert (found.value, found.count, found.total) == (pytest.approx(4.0), 2, 3)


def test_what_is_not_available_does_not_count():
    absent = fail(make_row(), Cause.NOT_INSTALLED, "", Status.UNAVAILABLE)
    found = average_speedup([absent, make_row(speedup=2.0)])
    assert (found.value, found.count, found.total) == (pytest.approx(2.0), 1, 1)


@pytest.mark.parametrize("speedup", [None, 0.0, -1.0, float("inf"), float("nan")])
def test_no_speedup_is_never_a_number_in_a_mean(speedup):
    found = average_speedup([make_row(speedup=speedup), make_row(speedup=2.0)])
    assert (found.value, found.count, found.total) == (pytest.approx(2.0), 1, 2)


def test_a_failed_row_with_numbers_does_not_count():
    assert average_speedup([make_row(status=Status.FAILED, speedup=9.0)]).value is None


@pytest.mark.parametrize("side", ["is_disturbed", "is_speedup_disturbed"])
def test_a_disturbed_speedup_lowers_the_count_and_not_the_mean(side):
    rows = [make_row(speedup=2.0), make_row(speedup=900.0, **{side: True}), make_row(speedup=8.0)]
    found = average_speedup(rows)
    assert found.value == pytest.approx(4.0)
    assert found == Average(found.value, 2, 3, 1)
    assert str(found) == "4.00x (2 of 3, 1 disturbed)"
    assert disturbed_rows(rows) == rows[1:2]


def test_a_disturbed_row_without_a_speedup_is_none_that_was_left_out():
    rows = [disturbed_row(speedup=None, is_disturbed=True), fail(make_row(), Cause.CRASH, "")]
    assert average_speedup(rows) == Average(None, 0, 2, 0)


def test_an_average_says_its_count():
    assert str(Average(1.234, 3, 4)) == "1.23x (3 of 4)"
    assert str(Average(None, 0, 4)) == "- (0 of 4)"


def test_ours_come_first():
    theirs = make_row(implementation="eager", owner=Owner.THEIRS)
    assert implementation_names([theirs, make_row(), theirs]) == ["tilesmith", "eager"]
    assert list(average_speedups([theirs, make_row()])) == ["tilesmith", "eager"]


def test_failures_of_ours_come_first():
    found = failures(make_rows())
    assert [row.blame for row in found] == ["ours failed", "harness failed"] + ["theirs failed"] * 4


def test_rows_keep_their_order_within_operators():
    a, b = make_row(operator="a"), make_row(operator="b")
    assert by_operator([a, b, replace(a, input_id=1)]) == {
        "a": [a, replace(a, input_id=1)],
        "b": [b],
    }
