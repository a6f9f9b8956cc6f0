"""What must hold at a launch for a trace to be used again: expressions that notice every change."""

from __future__ import annotations

import enum
import math
from typing import Any

import pytest
import torch

from tilesmith.frontend.tracing.guards import GuardList, has_device_form, root_of


class Mode(enum.Enum):
    FAST = 1
    EXACT = 2


def still_hold(guards: GuardList, value: Any) -> bool:
    return all(eval(g.expression, {"v": value}) == g.value for g in guards.guards)


def one(value: Any) -> int:
    return value + 1


def other(value: Any) -> int:
    return value + 2


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (1, 2),
        (1, True),
        (1, 1.0),
        (0.0, -0.0),
        (2.5, 2.25),
        (math.nan, 1.0),
        ("sum", "mean"),
        (None, 0),
        (torch.float32, torch.float16),
        (Mode.FAST, Mode.EXACT),
        (one, other),
        (range(3), range(4)),
    ],
)
def test_a_constant_that_changes_is_noticed(before: Any, after: Any) -> None:
    guards = GuardList(frozenset())
    guards.constant(before, "v")
    assert still_hold(guards, before)
    assert not still_hold(guards, after)


def test_nan_stays_nan_and_a_new_lambda_of_the_same_code_will_do() -> None:
    guards = GuardList(frozenset())
    guards.constant(math.nan, "v")
    assert still_hold(guards, float("nan"))
    made = [lambda x: x for _ in range(2)]
    guards = GuardList(frozenset())
    guards.constant(made[0], "v")
    assert still_hold(guards, made[1])


@pytest.mark.parametrize(
    ("before", "after"),
    [([1, 2], [1, 2, 3]), ([1, 2], (1, 2)), ({"a": 1}, {"b": 1}), ({"a": 1}, {"a": 1, "b": 2})],
)
def test_a_container_of_another_form_is_noticed(before: Any, after: Any) -> None:
    guards = GuardList(frozenset())
    guards.container(before, "v")
    assert still_hold(guards, before)
    assert not still_hold(guards, after)


def test_the_specialization_key_covers_arguments() -> None:
    guards = GuardList(frozenset({"v"}))
    guards.constant(1, "v[0].size(1)")
    guards.container([1], "v")
    assert guards.guards == []
    guards.constant(1, "w")
    assert len(guards.guards) == 1


def test_a_guard_is_listed_once() -> None:
    guards = GuardList(frozenset())
    guards.constant("sum", "v")
    guards.constant("sum", "v")
    assert len(guards.guards) == 1


def test_roots_and_device_forms() -> None:
    assert root_of("xs[1].shape") == "xs"
    assert has_device_form(torch.float32)
    assert has_device_form(one)
    assert not has_device_form({1, 2})
