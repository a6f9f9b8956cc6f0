"""The end of a soak: what counts as growth."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tools.soak import Sample, judge, soak

BEGIN = Sample(0.0, 500.0, 6, 9, 0, 1000, 60.0, 5000.0, 70.0, 5000.0)


def samples(**growth: float) -> list[Sample]:
    """Twelve in an hour; fields grow evenly by so much in all."""
    return [
        replace(
            BEGIN,
            seconds=300.0 * number,
            **{name: getattr(BEGIN, name) + by * number / 11 for name, by in growth.items()},
        )
        for number in range(12)
    ]


def test_what_stays_as_it_is_is_no_problem():
    assert judge(samples(), []) == []


@pytest.mark.parametrize(
    ("growth", "problem"),
    [
        ({"resident_mb": 200.0}, "memory grows by 218 MB an hour"),
        ({"descriptors": 60}, "descriptors grow from"),
        ({"children": 60}, "children grow from"),
        ({"ours_us": 1000.0}, "calls take"),
    ],
)
def test_growth_is_told(growth: dict[str, float], problem: str):
    (found,) = judge(samples(**growth), [])
    assert problem in found


def test_a_machine_that_gets_slower_is_not_our_growth():
    assert judge(samples(ours_us=300.0, eager_us=400.0), []) == []


def test_wrong_results_are_problems_however_short_the_run():
    assert judge([BEGIN], ["made_3 is wrong"]) == [
        "made_3 is wrong",
        "too few samples to tell: run longer",
    ]


@pytest.mark.full
def test_half_a_minute_of_everything():
    assert soak(0.5, "cpu", 1) == []
