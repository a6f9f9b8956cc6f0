"""Top-level loops run at the same time: each must do something, none may need another."""

from __future__ import annotations

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith import exc

X = torch.arange(1, 14, dtype=torch.float32)


def test_a_loop_without_effect_is_refused() -> None:
    @helion.kernel
    def nothing(x):
        out = torch.empty_like(x)
        for t in hl.tile(x.size(0)):
            x[t] + 1
        return out

    with pytest.raises(exc.EmptyDeviceLoopAfterDCE):
        nothing.bind((X,))


def test_reading_what_an_earlier_loop_writes_is_refused() -> None:
    @helion.kernel
    def dependent(x):
        part, out = torch.empty_like(x), torch.empty_like(x)
        for t in hl.tile(x.size(0)):
            part[t] = x[t]
        for t in hl.tile(x.size(0)):
            out[t] = part[t]
        return out

    with pytest.raises(exc.LoopDependencyError, match="part"):
        dependent.bind((X,))


def test_a_view_of_what_an_earlier_loop_writes_is_refused() -> None:
    @helion.kernel
    def dependent(x):
        part = torch.empty_like(x)
        view, out = part.view(-1), torch.empty_like(x)
        for t in hl.tile(x.size(0)):
            part[t] = x[t]
        for t in hl.tile(x.size(0)):
            out[t] = view[t]
        return out

    with pytest.raises(exc.LoopDependencyError, match="view"):
        dependent.bind((X,))


def test_two_writers_are_refused() -> None:
    @helion.kernel
    def twice(x):
        out = torch.empty_like(x)
        for t in hl.tile(x.size(0)):
            out[t] = x[t]
        for t in hl.tile(x.size(0)):
            out[t] = x[t] + 1
        return out

    with pytest.raises(exc.LoopDependencyError, match="out"):
        twice.bind((X,))


def test_reading_one_tensor_in_two_loops_is_fine() -> None:
    @helion.kernel
    def both(x):
        first, second = torch.empty_like(x), torch.empty_like(x)
        for t in hl.tile(x.size(0)):
            first[t] = x[t] + 1
        for t in hl.tile(x.size(0)):
            second[t] = x[t] * 2
        return first, second

    first, second = both(X)
    assert torch.equal(first, X + 1)
    assert torch.equal(second, X * 2)


def test_atomics_of_two_loops_may_meet() -> None:
    @helion.kernel
    def counted(x, y):
        total = torch.zeros([1], device=x.device)
        for t in hl.tile(x.size(0)):
            hl.atomic_add(total, [0], x[t].sum(0))
        for t in hl.tile(y.size(0)):
            hl.atomic_add(total, [0], y[t].sum(0))
        return total

    assert counted(X, X * 2).item() == 3 * X.sum().item()


def test_the_second_loop_counts_in_the_config() -> None:
    @helion.kernel
    def both(x, y):
        first, second = torch.empty_like(x), torch.empty_like(y)
        for t in hl.tile(x.size(0)):
            first[t] = x[t] + 1
        for t in hl.tile(y.size(0)):
            second[t] = y[t] * 2
        return first, second

    y = torch.arange(30.0)
    bound = both.bind((X, y))
    first, second = bound.compile_config(helion.Config(block_sizes=[4, 8]))(X, y)
    assert torch.equal(first, X + 1)
    assert torch.equal(second, y * 2)
    with pytest.raises(exc.InvalidConfig):
        bound.compile_config(helion.Config(block_sizes=[4]))
