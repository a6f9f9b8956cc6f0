"""Globals that a kernel itself reads: seen at every call, on the host and on the device."""

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.jit import executables

X = torch.arange(1, 14, dtype=torch.float32)
FACTOR = 2
OFFSET = 0.5
BIAS = torch.arange(13, dtype=torch.float32)
MODE = "add"
PARTS = [torch.ones(13), torch.full((13,), 2.0)]
FALLBACK = None


@helion.kernel
def uses_numbers(x):
    extra = FACTOR * 10
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = x[t] * FACTOR + OFFSET + extra
    return out


def test_numbers(monkeypatch, traces: list[str]) -> None:
    uses_numbers.reset()
    assert torch.equal(uses_numbers(X), X * 2 + 0.5 + 20)
    monkeypatch.setitem(globals(), "FACTOR", 3)
    assert torch.equal(uses_numbers(X), X * 3 + 0.5 + 30)
    monkeypatch.setitem(globals(), "OFFSET", -1.5)
    assert torch.equal(uses_numbers(X), X * 3 - 1.5 + 30)
    before = len(traces)
    for factor, offset in ((7, 2.5), (-2, 0.0), (11, 4.0)):
        monkeypatch.setitem(globals(), "FACTOR", factor)
        monkeypatch.setitem(globals(), "OFFSET", offset)
        assert torch.equal(uses_numbers(X), X * factor + offset + factor * 10)
    assert len(traces) == before, "numbers known to change are parameters"


@helion.kernel
def uses_tensors(x):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        value = x[t] + BIAS[t]
        for part in PARTS:
            value = value * part[t]
        out[t] = value
    return out


def test_tensors(monkeypatch, traces: list[str]) -> None:
    uses_tensors.reset()
    assert torch.equal(uses_tensors(X), (X + BIAS) * 2)
    monkeypatch.setitem(globals(), "BIAS", torch.ones(13))
    assert torch.equal(uses_tensors(X), (X + 1) * 2)
    assert len(traces) == 1
    monkeypatch.setitem(globals(), "PARTS", [torch.full((13,), 3.0)])
    assert torch.equal(uses_tensors(X), (X + 1) * 3)
    monkeypatch.setitem(globals(), "BIAS", torch.ones(26)[::2])
    assert torch.equal(uses_tensors(X), (X + 1) * 3)
    assert len(traces) == 3


@helion.kernel
def uses_a_string(x):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        if MODE == "add":
            out[t] = x[t] + 1
        else:
            out[t] = x[t] * 3
    return out


WEIGHTS = [1.0, 2.0]


@helion.kernel
def uses_a_list(x):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = x[t] * WEIGHTS[-1]
    return out


def test_a_list_of_numbers_that_gets_shorter(monkeypatch) -> None:
    for weights in ([1.0, 2.0], [3.0], [4.0, 5.0, 6.0], [7.0]):
        monkeypatch.setitem(globals(), "WEIGHTS", weights)
        for _ in range(3):
            assert torch.equal(uses_a_list(X), X * weights[-1])


def test_strings(monkeypatch) -> None:
    assert torch.equal(uses_a_string(X), X + 1)
    monkeypatch.setitem(globals(), "MODE", "scale")
    assert torch.equal(uses_a_string(X), X * 3)


@helion.kernel
def uses_an_optional(x):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        value = x[t]
        if FALLBACK is not None:
            value = value + FALLBACK[t]
        out[t] = value
    return out


def test_none_that_becomes_a_tensor(monkeypatch) -> None:
    assert torch.equal(uses_an_optional(X), X)
    monkeypatch.setitem(globals(), "FALLBACK", BIAS)
    assert torch.equal(uses_an_optional(X), X + BIAS)
    monkeypatch.setitem(globals(), "FALLBACK", None)
    assert torch.equal(uses_an_optional(X), X)


ZERO = 0.0


@helion.kernel
def fills_with_zero(x):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = torch.where(x[t] > 5, x[t], ZERO)
    return out


def test_the_sign_of_a_zero_counts(monkeypatch) -> None:
    fills_with_zero.reset()
    for zero in (0.0, -0.0, 0.0):
        monkeypatch.setitem(globals(), "ZERO", zero)
        expected = torch.where(X > 5, X, torch.tensor(zero))
        assert torch.equal(fills_with_zero(X).signbit(), expected.signbit())


STEP = 1.0
STEPS = [1.0, 2.0]


def stepped(x: torch.Tensor) -> torch.Tensor:
    return x + STEP * STEPS[1]


@helion.kernel
def uses_a_helper(x):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = stepped(x[t])
    return out


def test_numbers_that_helpers_read(monkeypatch) -> None:
    """They read them from their module: each value has code of its own."""
    uses_a_helper.reset()
    for step, other in [(1.0, 2.0)] * 4 + [(2.0, 2.0), (3.0, 2.0), (3.0, 5.0), (1.0, 2.0)]:
        monkeypatch.setitem(globals(), "STEP", step)
        monkeypatch.setitem(globals(), "STEPS", [1.0, other])
        assert torch.equal(uses_a_helper(X), X + step * other)


def test_numbers_that_change_for_ever(monkeypatch) -> None:
    """Calls do not get deeper and deeper."""
    monkeypatch.setattr(executables, "MAX_LAUNCHERS", 3, raising=False)
    uses_a_helper.reset()
    for step in (1.0, 2.0, 3.0, 4.0, 5.0, 1.0, 5.0, 6.0):
        monkeypatch.setitem(globals(), "STEP", step)
        assert torch.equal(uses_a_helper(X), X + step * STEPS[1])
    active = uses_a_helper.bind((X,))._active
    assert active is not None
    launch, depth = active.launch, 0
    while "__otherwise" in (scope := launch.__globals__):
        launch, depth = scope["__otherwise"], depth + 1
    assert depth <= 3


def test_helpers_that_get_other_code(monkeypatch) -> None:
    uses_a_helper.reset()
    for _ in range(4):
        assert torch.equal(uses_a_helper(X), X + STEP * STEPS[1])
    monkeypatch.setattr(stepped, "__code__", (lambda x: x - 1).__code__)
    for _ in range(3):
        assert torch.equal(uses_a_helper(X), X - 1)
    monkeypatch.undo()
    monkeypatch.setitem(globals(), "stepped", lambda x: x * 4)
    for _ in range(3):
        assert torch.equal(uses_a_helper(X), X * 4)
    monkeypatch.undo()
    assert torch.equal(uses_a_helper(X), X + STEP * STEPS[1])
