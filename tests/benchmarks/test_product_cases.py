"""Shapes of products that are timed: those held out are drawn, and the same every time."""

from __future__ import annotations

from benchmarks.product_cases import CASES, FRESH, FRESH_SEED, GRAINS, HELD, OTHERS, drawn


def sizes(cases):
    return {(case.m, case.k, case.n) for case in cases}


def test_fresh_shapes_are_no_others_and_stay_the_same():
    assert drawn(FRESH_SEED) == FRESH
    assert not sizes(FRESH) & sizes((*CASES, *OTHERS, *HELD))
    assert not sizes(drawn(FRESH_SEED + 1)) & sizes(FRESH)


def test_every_grain_occurs_in_both_precisions():
    for number, case in enumerate(FRESH):
        grain = GRAINS[number % len(GRAINS)]
        assert all(size % grain == 0 for size in (case.m, case.k, case.n))
    assert {case.precision for case in FRESH} == {"bf16", "tf32"}
