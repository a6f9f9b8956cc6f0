"""Two runs: changes beyond noise are told, changes within it are not."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tests.bench.made_up_rows import disturbed_row, fail, make_row, make_rows
from tilesmith.bench.compare import ChangeKind, compare, judge
from tilesmith.bench.row import Cause, Owner, Row, Status


def slower_by(share: float, row: Row | None = None, **changes) -> Row:
    row = row or make_row()
    assert row.latency_ms is not None
    return replace(row, latency_ms=row.latency_ms * (1 + share), **changes)


def test_the_same_run_twice_has_no_changes():
    rows = make_rows()
    kinds = {change.kind for change in compare(rows, rows).changes}
    assert kinds == {ChangeKind.SAME, ChangeKind.STILL_FAILS}


@pytest.mark.parametrize(
    ("share", "kind"),
    [
        (0.029, ChangeKind.SAME),
        (0.031, ChangeKind.SLOWER),
        (-0.028, ChangeKind.SAME),
        (-0.031, ChangeKind.FASTER),
    ],
)
def test_changes_below_the_threshold_are_none(share, kind):
    assert judge(make_row(), slower_by(share)).kind is kind


@pytest.mark.parametrize("place", ["before", "after"])
@pytest.mark.parametrize("field", ["spread", "noise_floor"])
def test_noise_of_either_row_counts(place, field):
    noisy = make_row(**{field: 0.2})
    before = noisy if place == "before" else make_row()
    after = slower_by(0.15, noisy if place == "after" else make_row())
    assert judge(before, after).kind is ChangeKind.SAME
    assert judge(before, slower_by(0.25, after)).kind is ChangeKind.SLOWER


def test_noise_of_both_rows_adds_up():
    before, after = make_row(spread=0.1), slower_by(0.15, spread=0.1)
    change = judge(before, after)
    assert (change.kind, change.noise) == (ChangeKind.SAME, pytest.approx(0.2))


def test_swapping_the_runs_swaps_the_verdict():
    a, b = make_row(), slower_by(0.5)
    assert (judge(a, b).kind, judge(b, a).kind) == (ChangeKind.SLOWER, ChangeKind.FASTER)


def test_a_slower_machine_is_not_a_slower_kernel():
    change = judge(make_row(), slower_by(0.3, baseline_ms=0.6 * 1.3))
    assert change.kind is ChangeKind.MACHINE
    assert change.ratio == pytest.approx(1.3)
    assert change.relative_ratio == pytest.approx(1.0)
    assert not change.is_regression


def test_a_baseline_that_moved_the_other_way_hides_nothing():
    assert judge(make_row(), slower_by(0.3, baseline_ms=0.5)).kind is ChangeKind.SLOWER


@pytest.mark.parametrize("place", [0, 1])
def test_disturbed_times_are_judged_neither_way(place):
    pair = [make_row(), slower_by(9.0)]
    pair[place] = replace(pair[place], is_disturbed=True)
    change = judge(pair[0], pair[1])
    assert (change.kind, change.is_regression) == (ChangeKind.DISTURBED, False)
    average = compare(pair[:1], pair[1:]).ratios["tilesmith"]
    assert (average.value, average.count, average.num_disturbed) == (None, 0, 1)


def test_a_disturbed_baseline_excuses_nothing():
    """It moved as far as the time did, but only because it had to wait for a core."""
    change = judge(disturbed_row(), slower_by(0.3, disturbed_row(), baseline_ms=11.98 * 1.3))
    assert (change.kind, change.relative_ratio) == (ChangeKind.SLOWER, None)


def test_noise_of_the_baseline_counts_where_it_is_the_judge():
    after = slower_by(0.3, baseline_ms=0.6 * 1.2)
    assert judge(make_row(), after).kind is ChangeKind.SLOWER
    unsure = judge(make_row(), replace(after, speedup_spread=0.2))
    assert unsure.kind is ChangeKind.MACHINE
    assert unsure.relative_noise == pytest.approx(0.213)


def test_eager_is_not_judged_by_itself():
    eager = make_row(implementation="eager", owner=Owner.THEIRS)
    assert judge(eager, slower_by(0.3, eager, baseline_ms=0.78)).kind is ChangeKind.SLOWER


def test_rows_without_a_baseline_are_judged_by_time():
    alone = make_row(baseline_ms=None, speedup=None)
    assert judge(alone, slower_by(0.3, alone)).kind is ChangeKind.SLOWER


def test_failures_that_come_and_go():
    good, bad = make_row(), fail(make_row(), Cause.CRASH, "signal 11")
    absent = fail(make_row(), Cause.NOT_INSTALLED, "", Status.UNAVAILABLE)
    assert judge(good, bad).kind is ChangeKind.FAILS_NOW
    assert judge(bad, good).kind is ChangeKind.WORKS_NOW
    assert judge(bad, bad).kind is ChangeKind.STILL_FAILS
    assert judge(None, good).kind is ChangeKind.ADDED
    assert judge(good, None).kind is ChangeKind.REMOVED
    assert judge(good, absent).kind is ChangeKind.REMOVED
    assert judge(absent, good).kind is ChangeKind.ADDED
    assert judge(absent, absent).kind is ChangeKind.SAME


def test_only_ours_can_be_a_regression():
    theirs = make_row(implementation="triton", owner=Owner.THEIRS)
    assert not judge(theirs, slower_by(1.0, theirs)).is_regression
    assert judge(make_row(), slower_by(1.0)).is_regression
    assert judge(make_row(), fail(make_row(), Cause.HANG, "")).is_regression


def test_inputs_are_recognised_by_label_when_a_suite_grows():
    found = compare([make_row(input_id=3)], [slower_by(0.5, make_row(input_id=7))])
    assert [change.kind for change in found.changes] == [ChangeKind.SLOWER]


def test_types_and_devices_are_not_mixed_up():
    found = compare([make_row(dtype="float32")], [slower_by(0.5, make_row(device="cpu"))])
    assert [change.kind for change in found.changes] == [ChangeKind.ADDED, ChangeKind.REMOVED]


def test_the_gravest_come_first():
    labels = "abcd"
    before = [make_row(input_label=label) for label in labels]
    after = [
        slower_by(-0.3, before[0]),
        slower_by(0.2, before[1]),
        slower_by(0.9, before[2]),
        fail(before[3], Cause.CRASH, ""),
    ]
    assert [change.row.input_label for change in compare(before, after).changes] == list("dcba")


def test_means_of_ratios_are_geometric_and_counted():
    before = [make_row(input_label=label) for label in "abc"]
    after = [
        slower_by(1.0, before[0]),
        slower_by(-0.75, before[1]),
        fail(before[2], Cause.HANG, ""),
    ]
    average = compare(before, after).ratios["tilesmith"]
    assert average.value == pytest.approx((2.0 * 0.25) ** 0.5)
    assert (average.count, average.total) == (2, 3)


def test_runs_that_differ_by_their_noise_only_are_within_noise():
    rng = random.Random(5)
    before = [row for row in make_rows() if row.latency_ms]
    after = [slower_by(rng.uniform(-0.02, 0.02), row) for row in before]
    assert {change.kind for change in compare(before, after).changes} == {ChangeKind.SAME}
