"""Kernels whose constants change for ever keep a bounded number of traces, those used lately."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.compiler import specialization
from tilesmith.jit import bound_kernel

X = torch.arange(1, 14, dtype=torch.float32)
WORD = "a"
LIMIT = 5


@pytest.fixture(autouse=True)
def _low_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bound_kernel, "MAX_RECENT", LIMIT)
    monkeypatch.setattr(specialization, "MAX_VARIANTS", LIMIT)


def fresh(fn: Any, **settings: Any) -> Any:
    """A kernel that knows no call."""
    return helion.kernel(fn, config=helion.Config(block_sizes=[16]), **settings)


def adds_constant(x, number: hl.constexpr):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = x[t] + number
    return out


def adds_length(x):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = x[t] + len(WORD)
    return out


def test_traces_of_constants_that_change_are_dropped():
    kernel = fresh(adds_constant)
    alive: list[weakref.ref[Any]] = []
    for number in range(40):
        for _ in range(3):
            assert torch.equal(kernel(X, number), X + number)
        alive.append(weakref.ref(kernel.bind((X, number))))
        assert len(kernel._bound_kernels) <= 2 * LIMIT + 1
    gc.collect()
    assert sum(found() is not None for found in alive) <= 2 * LIMIT + 1
    assert alive[-1]() is not None


def test_traces_that_are_used_stay(traces: list[str]):
    kernel = fresh(adds_constant)
    for number in range(40):
        assert torch.equal(kernel(X, number), X + number)
        for often in (0, 1):
            assert torch.equal(kernel(X, often), X + often)
    assert len(traces) == 40


def test_kernels_that_were_given_a_config_stay(traces: list[str]):
    kernel = fresh(adds_constant)
    config = helion.Config(block_sizes=[4])
    kernel.bind((X, 1000)).set_config(config)
    for number in range(40):
        kernel(X, number)
    assert torch.equal(kernel(X, 1000), X + 1000)
    assert kernel.bind((X, 1000)).chosen == config
    assert len(traces) == 41


def test_other_targets_are_dropped_too():
    kernel = fresh(adds_constant)
    for number in range(30):
        kernel.bind((X, number), target="cuda:90")
    assert len(kernel._bound_elsewhere) <= 2 * LIMIT + 1


def test_traces_of_host_values_that_change_are_dropped(monkeypatch, traces: list[str]):
    kernel = fresh(adds_length)
    for length in range(30):
        monkeypatch.setitem(globals(), "WORD", "a" * length)
        for _ in range(2):
            assert torch.equal(kernel(X), X + length)
        variants = kernel.bind((X,)).specialization.variants
        assert len(variants) <= LIMIT
    assert len(traces) == 30
    monkeypatch.setitem(globals(), "WORD", "")
    assert torch.equal(kernel(X), X)


def specialises_one_of_two(x, y, is_first: hl.constexpr):
    size = hl.specialize(x.size(0)) if is_first else hl.specialize(y.size(0))
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = x[t] * size
    return out


def test_keys_have_what_any_way_of_host_code_specialises():
    kernel = fresh(specialises_one_of_two, static_shapes=False)
    for first, second in ((5, 6), (7, 6), (7, 9), (5, 9), (5, 6)):
        x, y = torch.ones(first), torch.ones(second)
        for is_first in (True, False):
            size = first if is_first else second
            for _ in range(2):
                assert torch.equal(kernel(x, y, is_first), x * size)
    found = [len(bound.specialization.variants) for bound in kernel._bound_kernels.values()]
    assert set(found) == {1}, "no trace for another value of what a key has"
