"""Functions among the arguments: traced where called, with what they hold and read."""

from __future__ import annotations

import functools
import types
from typing import Any

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith import exc

X = torch.arange(1, 14, dtype=torch.float32)
SCALE = 2.0
TABLE = torch.arange(13, dtype=torch.float32)
SETTINGS = types.ModuleType("user_settings")
SETTINGS.offset = 1.0  # type: ignore[attr-defined]


@helion.kernel
def apply(x, fn):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = fn(x[t], t)
    return out


@helion.kernel
def apply_both(x, first, second):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = second(first(x[t], t), t)
    return out


@pytest.fixture(autouse=True)
def fresh() -> None:
    apply.reset()
    apply_both.reset()


def adding(bias: torch.Tensor):
    return lambda value, t: value + bias[t]


def times(factor: float):
    return lambda value, t: value * factor


def test_torch_functions_and_language_functions_are_callables() -> None:
    @helion.kernel
    def unary(x, fn):
        out = torch.empty_like(x)
        for t in hl.tile(x.size(0)):
            out[t] = fn(x[t])
        return out

    for fn in (torch.relu, torch.neg, torch.nn.functional.relu, torch.square):
        assert torch.equal(unary(X - 5, fn), fn(X - 5))


def test_a_new_lambda_of_the_same_code_needs_no_trace(traces: list[str]) -> None:
    for _ in range(3):
        assert torch.equal(apply(X, lambda value, t: value + 1), X + 1)
    assert len(traces) == 1


def test_a_captured_tensor_is_an_input(traces: list[str]) -> None:
    for seed in range(3):
        bias = torch.full((13,), float(seed))
        assert torch.equal(apply(X, adding(bias)), X + seed)
    assert len(traces) == 1
    wide = torch.ones(26)[::2]
    assert torch.equal(apply(X, adding(wide)), X + 1)
    assert len(traces) == 2, "other strides"


def test_a_captured_number_is_a_constant(traces: list[str]) -> None:
    for factor in (2.0, 3.0, 2.0, 3, -0.0, 0.0):
        result = apply(X, times(factor))
        assert torch.equal(result, X * factor)
        assert torch.equal(result.signbit(), (X * factor).signbit())
    assert len(traces) == 5


def test_containers_in_a_closure(traces: list[str]) -> None:
    def mixing(parts: dict[str, torch.Tensor], weights: list[float]):
        return lambda value, t: value * weights[0] + parts["bias"][t] * weights[1]

    for seed, weights in ((1, [2.0, 3.0]), (5, [2.0, 3.0]), (5, [2.0, 4.0])):
        parts = {"bias": torch.full((13,), float(seed))}
        result = apply(X, mixing(parts, weights))
        assert torch.equal(result, X * weights[0] + seed * weights[1])
    assert len(traces) == 2


def test_defaults_are_like_closures(traces: list[str]) -> None:
    for seed, factor in ((1, 2.0), (2, 2.0), (2, 3.0)):
        bias = torch.full((13,), float(seed))
        result = apply(X, lambda value, t, b=bias, *, f=factor: value * f + b[t])
        assert torch.equal(result, X * factor + seed)
    assert len(traces) == 2


def test_a_captured_tensor_that_is_an_argument_too() -> None:
    assert torch.equal(apply(X, adding(X)), X + X)
    # Now it is another tensor of the same form.
    assert torch.equal(apply(X, adding(torch.ones(13))), X + 1)
    assert torch.equal(apply(X, adding(X)), X + X)


def test_a_tensor_captured_twice() -> None:
    one, two = torch.ones(13), torch.full((13,), 2.0)
    assert torch.equal(apply_both(X, adding(one), adding(one)), X + 2)
    assert torch.equal(apply_both(X, adding(one), adding(two)), X + 3)
    assert torch.equal(apply_both(X, adding(two), adding(two)), X + 4)


def test_functions_in_closures(traces: list[str]) -> None:
    def twice(inner):
        return lambda value, t: inner(inner(value, t), t)

    assert torch.equal(apply(X, twice(times(3.0))), X * 9)
    assert torch.equal(apply(X, twice(times(2.0))), X * 4)
    assert torch.equal(apply(X, twice(adding(X))), X * 3)
    assert len(traces) == 3


def test_mutually_recursive_functions() -> None:
    def even(value, t, n=4):
        return value if n == 0 else odd(value + 1, t, n - 1)

    def odd(value, t, n):
        return even(value + 1, t, n - 1)

    assert torch.equal(apply(X, even), X + 4)


def with_globals(value, t):
    return value * SCALE + TABLE[t] + SETTINGS.offset


def test_globals_of_a_function_are_read_at_every_call(monkeypatch, traces: list[str]) -> None:
    module = with_globals.__globals__
    assert torch.equal(apply(X, with_globals), X * 2 + TABLE + 1)
    monkeypatch.setitem(module, "SCALE", 3.0)
    assert torch.equal(apply(X, with_globals), X * 3 + TABLE + 1)
    monkeypatch.setitem(module, "TABLE", torch.ones(13))
    assert torch.equal(apply(X, with_globals), X * 3 + 2)
    monkeypatch.setattr(SETTINGS, "offset", 5.0)
    assert torch.equal(apply(X, with_globals), X * 3 + 6)
    monkeypatch.setitem(module, "TABLE", torch.ones(26)[::2])
    assert torch.equal(apply(X, with_globals), X * 3 + 6)
    assert torch.equal(apply(X, with_globals), X * 3 + 6)
    assert len(traces) == 4, "first, scale, offset, strides; another table of the same form is none"


def helper(value, t):
    return with_globals(value, t) - 1


@helion.kernel
def calls_a_helper(x):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = helper(x[t], t)
    return out


def test_globals_of_helpers_of_helpers_are_read_at_every_call(monkeypatch) -> None:
    assert torch.equal(calls_a_helper(X), X * 2 + TABLE)
    monkeypatch.setitem(globals(), "SCALE", 4.0)
    assert torch.equal(calls_a_helper(X), X * 4 + TABLE)
    monkeypatch.setitem(globals(), "helper", lambda value, t: value)
    assert torch.equal(calls_a_helper(X), X)


class Negation:
    """A callable that is no function."""

    def __call__(self, value: Any) -> Any:
        return -value


@pytest.mark.parametrize("fn", [functools.partial(Negation()), Negation(), object()])
def test_other_callables_are_refused(fn) -> None:
    with pytest.raises(exc.UnsupportedArgumentType, match="fn"):
        apply(X, fn)
