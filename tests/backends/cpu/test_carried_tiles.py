"""Tiles that loops and branches hand on, as native code and by the interpreter.

All next values are computed before any of them takes its place.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tilesmith as helion
from tests.backends.cpu import carried_tile_kernels as kernels
from tests.host_backends import BACKENDS, lanes, on_backend

W = lanes()
LENGTHS = (1, W - 1, W, W + 1, 53)

backends = pytest.mark.parametrize("backend", BACKENDS)


def numbers(*shape: int) -> torch.Tensor:
    count = torch.Size(shape).numel()
    return (torch.arange(count) * 7 % 31 - 9).view(shape)


def _fibonacci(a, b, steps):
    for _ in range(steps):
        a, b = b, a + b
    return a * 1000 + b


def _swapped(a, b, steps):
    return b * 1000 + a if steps % 2 else a * 1000 + b


def _rotated(a, b, steps):
    c = a + b
    for step in range(steps):
        a, b, c = b, c, a + step
    return (a * 100 + b) * 100 + c


def _handed_on_twice(a, b, steps):
    for _ in range(steps):
        a = b = a - 2 * b
    return a * 1000 + b


def _one_stays_behind(before, now, steps):
    for _ in range(steps):
        before, now = now, now + 3
    return before * 1000 + now


def _unchanged(a, b, steps):
    return a * 1000 + b + steps * a


def _loop_in_a_loop(a, b, steps):
    for _ in range(steps):
        for _ in range(2):
            a, b = b, a + 1
        a = a + b
    return a * 1000 + b


def _loops_that_cross(a, b, steps):
    for step in range(steps):
        a, b = b - 2 * step, a + 2
    return a * 1000 + b


def _chosen_per_step(a, b, steps):
    for step in range(steps):
        a, b = (b + 1, a) if step % 2 == 0 else (a * 2, b)
    return a * 1000 + b


EXPECTED: dict[str, Any] = {
    "fibonacci": _fibonacci,
    "swapped": _swapped,
    "rotated": _rotated,
    "handed_on_twice": _handed_on_twice,
    "one_stays_behind": _one_stays_behind,
    "unchanged": _unchanged,
    "loop_in_a_loop": _loop_in_a_loop,
    "loops_that_cross": _loops_that_cross,
    "chosen_per_step": _chosen_per_step,
}


@backends
@pytest.mark.parametrize("dtype", [torch.int64, torch.float64], ids=str)
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("name", EXPECTED)
def test_next_values_are_taken_all_at_once(
    name: str, length: int, dtype: torch.dtype, backend: str
) -> None:
    kernel = on_backend(getattr(kernels, name), backend)
    x, y = numbers(length).to(dtype), (numbers(length) * 3 + 1).to(dtype)
    # The loop's length is a runtime value: none, one, an odd and an even number of steps.
    for steps in (0, 1, 5, 8):
        bound = kernel.bind((x, y, steps))
        for block in (4, 64):
            found = bound.compile_config(helion.Config(block_sizes=[block]))(x, y, steps)
            assert torch.equal(found, EXPECTED[name](x, y, steps)), (steps, block)


@backends
@pytest.mark.parametrize("size", [2, W - 1, W + 1, 33])
def test_a_tile_that_is_turned_in_every_step(size: int, backend: str) -> None:
    x = numbers(5, size, size)
    found = on_backend(kernels.turned, backend)(x)
    state = torch.zeros_like(x[0])
    for i in range(5):
        state = state.t() + x[i]
        assert torch.equal(found[i], state)


@backends
@pytest.mark.parametrize("size", [2, W - 1, W + 1, 33])
def test_a_tile_that_is_turned_after_an_inner_loop(size: int, backend: str) -> None:
    """The inner loop works in the memory of the carried tile that its result replaces, turned."""
    x = numbers(5, size, size)
    found = on_backend(kernels.turned_after_a_loop, backend)(x)
    state, other = torch.zeros_like(x[0]), torch.zeros_like(x[0])
    for i in range(5):
        state = state + x[: i + 1].sum(0)
        other, state = other + state.t(), state.t() - 1
        assert torch.equal(found[i], state + 3 * other)


@backends
@pytest.mark.parametrize("size", [16, 17, 33])
def test_products_of_carried_tiles(size: int, backend: str) -> None:
    x = (numbers(5, size, size) % 5 - 2).float()
    found = on_backend(kernels.powers, backend)(x)
    now, before = x[0], x[1]
    for i in range(5):
        now, before = (now @ before) % 7, now
        assert torch.equal(found[i], now)
    found = on_backend(kernels.accumulated, backend)(x)
    lasts = torch.cat([x[:1], x[:-1] - 1])
    assert torch.equal(found[0], (x @ lasts).sum(0))
    assert torch.equal(found[1], x[-1] - 1)


@backends
@pytest.mark.parametrize("columns", LENGTHS)
def test_a_loop_of_unknown_length(columns: int, backend: str) -> None:
    x, limits = numbers(6, columns), torch.tensor([-1, 5, -100, 1000, -7, 0])
    found, count = on_backend(kernels.halved_until_small, backend)(x, limits)
    for i, limit in enumerate(limits.tolist()):
        row, other, steps = x[i], x[i] * 3, 0
        while row.amax() > limit:
            row, other, steps = other - row * 2 - 50, row, steps + 1
        assert count[i] == steps
        assert torch.equal(found[i], row * 10 + other)


@backends
@pytest.mark.parametrize("columns", LENGTHS)
def test_branches_that_make_tiles(columns: int, backend: str) -> None:
    x, flags = numbers(6, columns), torch.tensor([0, 1, 2, 2, 1, 0])
    found = on_backend(kernels.branches, backend)(x, flags)
    for i, flag in enumerate(flags.tolist()):
        row = x[i]
        pairs = [(row + row.sum(), row), (row, row.cumsum(0)), (row * 2, row * 2)]
        new, other = pairs[flag]
        assert torch.equal(found[i], new * 1000 + other)


@backends
@pytest.mark.parametrize("columns", LENGTHS)
@pytest.mark.parametrize("rows", LENGTHS)
def test_tiles_of_two_loops(rows: int, columns: int, backend: str) -> None:
    x, y = numbers(rows), numbers(columns)
    block = 8
    bound = on_backend(kernels.tiles_of_two_loops, backend).bind((x, y))
    found = bound.compile_config(helion.Config(block_sizes=[4, block]))(x, y)
    pairs = x[:, None] * 3 - y[None, :] ** 2
    best = pairs.amax(1)
    done = (columns - 1) // block * block
    before = pairs[:, :done].amax(1) if done else torch.full_like(best, -1000000)
    assert torch.equal(found, best * 1000 + before)


@backends
@pytest.mark.parametrize("columns", [3, W - 1, W, W + 1, 53])
@pytest.mark.parametrize("block", [4, W, 64])
def test_lanes_beyond_the_last_tile_keep_what_they_had(
    block: int, columns: int, backend: str
) -> None:
    x = numbers(3, columns)
    bound = on_backend(kernels.kept_beyond_the_last_tile, backend).bind((x,))
    found = bound.compile_config(helion.Config(block_sizes=[block]))(x)
    size = int(found[0, 3])
    padded = torch.cat([x, torch.zeros(3, -columns % size, dtype=x.dtype)], 1)
    total = padded.view(3, -1, size).sum(1) + 2
    assert torch.equal(found[:, 0], total.sum(1))
    assert torch.equal(found[:, 1], total.amax(1))
    assert torch.equal(found[:, 2], total.amin(1))
