"""Fragments: membership, sampling, neighbours and mutation stay within the set."""

from __future__ import annotations

from random import Random

import pytest

from tilesmith.schedule.space.fragments import (
    BlockSizeFragment,
    BooleanFragment,
    EnumFragment,
    IntegerFragment,
    ListOf,
    NumWarpsFragment,
    PermutationFragment,
    PowerOfTwoFragment,
)

FRAGMENTS = [
    PowerOfTwoFragment(1, 256),
    PowerOfTwoFragment(8, 8),
    PowerOfTwoFragment(4, 64, 16),
    IntegerFragment(-2, 5, 3),
    EnumFragment(("a", "b", "c")),
    EnumFragment([1, 2.5, True], search_choices=[1, 2.5]),
    EnumFragment((None, False, True)),
    BooleanFragment(),
    PermutationFragment(1),
    PermutationFragment(3),
    ListOf(IntegerFragment(0, 2), 3),
    ListOf(BooleanFragment(), 0),
    BlockSizeFragment(16, 128, 64),
    NumWarpsFragment(1, 32, 4),
]


@pytest.mark.parametrize("fragment", FRAGMENTS, ids=str)
def test_everything_a_fragment_gives_is_a_member(fragment):
    rng = Random(0)
    assert fragment.validate(fragment.default) is None
    samples = [fragment.random(rng) for _ in range(30)]
    length = len(fragment.encode(fragment.default))
    for value, first, second in zip(samples, samples[1:], samples[2:]):
        assert fragment.validate(value) is None
        assert len(fragment.encode(value)) == length
        moved = fragment.mutate(value, (first, second), rng)
        assert fragment.validate(moved) is None
        near = fragment.neighbours(value)
        assert value not in near
        assert all(fragment.validate(other) is None for other in near)


@pytest.mark.parametrize("fragment", FRAGMENTS, ids=str)
def test_cardinality_counts_what_sampling_reaches(fragment):
    rng = Random(1)
    seen = {repr(fragment.random(rng)) for _ in range(600)}
    assert len(seen) == fragment.cardinality


@pytest.mark.parametrize(
    ("fragment", "value", "message"),
    [
        (PowerOfTwoFragment(1, 32), 3, "expected a power of two from 1 to 32, found 3"),
        (PowerOfTwoFragment(1, 32), 64, "expected a power of two from 1 to 32, found 64"),
        (PowerOfTwoFragment(1, 32), True, "expected a power of two from 1 to 32, found True"),
        (PowerOfTwoFragment(1, 32), 4.0, "expected a power of two from 1 to 32, found 4.0"),
        (IntegerFragment(1, 8), 99, "expected an integer from 1 to 8, found 99"),
        (IntegerFragment(0, 1), False, "expected an integer from 0 to 1, found False"),
        (EnumFragment(("", "x")), "y", "expected one of '', 'x', found 'y'"),
        (EnumFragment((0, 16)), False, "expected one of 0, 16, found False"),
        (BooleanFragment(), 1, "expected True or False, found 1"),
        (PermutationFragment(2), [0, 0], "expected a permutation of [0, 1], found [0, 0]"),
        (
            PermutationFragment(2),
            [True, False],
            "expected a permutation of [0, 1], found [True, False]",
        ),
        (PermutationFragment(2), 1, "expected a permutation of [0, 1], found 1"),
        (
            ListOf(BooleanFragment(), 2),
            [True],
            "expected a list of 2 values, each True or False, found [True]",
        ),
        (BlockSizeFragment(1, 64), 0, "expected a power of two, found 0"),
        (BlockSizeFragment(1, 64), -8, "expected a power of two, found -8"),
    ],
)
def test_strangers_are_told_what_was_expected(fragment, value, message):
    assert fragment.validate(value) == message


def test_default_is_the_lower_bound_unless_given():
    assert PowerOfTwoFragment(2, 64).default == 2
    assert PowerOfTwoFragment(2, 64, default=8).default == 8
    assert IntegerFragment(3, 9).default == 3
    assert EnumFragment(("b", "a")).default == "b"
    assert BooleanFragment().default is False
    assert PermutationFragment(3).default == [0, 1, 2]


@pytest.mark.parametrize(
    "make",
    [
        lambda: PowerOfTwoFragment(3, 8),
        lambda: PowerOfTwoFragment(1, 6),
        lambda: PowerOfTwoFragment(8, 4),
        lambda: PowerOfTwoFragment(1, 8, 16),
        lambda: IntegerFragment(2, 1),
        lambda: EnumFragment(()),
        lambda: EnumFragment((1, 2), search_choices=(3,)),
    ],
)
def test_impossible_bounds_are_refused(make):
    with pytest.raises(ValueError, match="expected"):
        make()


def test_neighbours_within_a_radius():
    assert PowerOfTwoFragment(1, 256).neighbours(8) == [4, 16]
    assert PowerOfTwoFragment(1, 256).neighbours(8, radius=2) == [2, 4, 16, 32]
    assert PowerOfTwoFragment(8, 256).neighbours(8) == [16]
    assert IntegerFragment(0, 4).neighbours(4) == [3]
    assert PermutationFragment(2).neighbours([0, 1]) == [[1, 0]]
    assert ListOf(BooleanFragment(), 2).neighbours([False, True]) == [[True, True], [False, False]]


def test_mutation_follows_the_sign_of_the_difference():
    rng = Random(0)
    assert PowerOfTwoFragment(1, 64).mutate(8, (32, 2), rng) == 16
    assert PowerOfTwoFragment(1, 64).mutate(8, (2, 32), rng) == 4
    assert PowerOfTwoFragment(1, 64).mutate(64, (32, 2), rng) == 64
    assert IntegerFragment(0, 4).mutate(2, (1, 4), rng) == 1


def test_blocks_may_exceed_what_is_searched():
    fragment = BlockSizeFragment(16, 128, 64)
    assert fragment.contains(4096)
    assert fragment.neighbours(128) == [64]
