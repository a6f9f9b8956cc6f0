"""How numbers known at run time only, and tensors without dimensions, promote: as in eager."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl

DTYPES = (torch.float32, torch.bfloat16, torch.float64, torch.int32, torch.int64, torch.bool)
OPERATORS: tuple[Callable[[Any, Any], Any], ...] = (
    operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod,
    operator.lt, operator.eq,
)  # fmt: skip
NUMBERS = (3, -2, 0.75, -1.5)


@helion.kernel
def with_number(x, number, out, fn):
    for t in hl.tile(x.size(0)):
        out[t] = fn(x[t], number)


@helion.kernel
def with_scalar_tensor(x, y, out, fn):
    for t in hl.tile(x.size(0)):
        out[t] = fn(x[t], y[()])


def values(dtype: torch.dtype) -> torch.Tensor:
    x = torch.tensor([1, 2, 3, 5, 7, 11, -4, -9, 6])
    return x > 2 if dtype == torch.bool else x.to(dtype)


def eager(fn: Callable[[Any, Any], Any], left: Any, right: Any) -> torch.Tensor | None:
    try:
        return fn(left, right)
    except (RuntimeError, NotImplementedError):
        return None


def run(kernel: Any, left: Any, right: Any, fn: Callable[[Any, Any], Any]) -> torch.Tensor:
    seen: list[torch.dtype] = []

    def noting(a: Any, b: Any) -> Any:
        result = fn(a, b)
        seen.append(result.dtype)
        return result

    kernel.bind((left, right, torch.empty(len(left)), noting))
    out = torch.empty(len(left), dtype=seen[0])
    config = helion.Config(block_sizes=[4])
    kernel.bind((left, right, out, noting)).compile_config(config)(left, right, out, noting)
    return out


def same(result: torch.Tensor, expected: torch.Tensor) -> None:
    assert result.dtype == expected.dtype
    torch.testing.assert_close(result, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("fn", OPERATORS, ids=lambda fn: fn.__name__)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_runtime_numbers(dtype: torch.dtype, fn: Any, number: float) -> None:
    expected = eager(fn, values(dtype), number)
    if expected is not None:
        same(run(with_number, values(dtype), number, fn), expected)


@pytest.mark.parametrize("fn", OPERATORS, ids=lambda fn: fn.__name__)
@pytest.mark.parametrize("right", DTYPES, ids=str)
@pytest.mark.parametrize("left", DTYPES, ids=str)
def test_tensors_without_dimensions_are_weak(
    left: torch.dtype, right: torch.dtype, fn: Any
) -> None:
    scalar = torch.tensor(3).to(right)
    expected = eager(fn, values(left), scalar)
    if expected is not None:
        same(run(with_scalar_tensor, values(left), scalar, fn), expected)


@helion.kernel
def positions(x, out):
    for t in hl.tile(x.size(0)):
        out[t, 0] = x[t] * t.begin
        out[t, 1] = x[t] + t.block_size
        out[t, 2] = t.index * x[t]
        out[t, 3] = (t.end - t.begin) * x[t]
        out[t, 4] = t.id / 2 + x[t] * 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64], ids=str)
def test_positions_are_weak_integers(dtype: torch.dtype) -> None:
    x = values(dtype)
    out = torch.empty(9, 5)
    positions.bind((x, out)).compile_config(helion.Config(block_sizes=[4]))(x, out)
    index = torch.arange(9, dtype=torch.int32)
    begin = index // 4 * 4
    length = torch.minimum(begin + 4, torch.tensor(9)) - begin
    expected = torch.stack(
        [
            torch.stack([x[i] * int(begin[i]) for i in range(9)]).float(),
            (x + 4).float(),
            (index * x).float(),
            torch.stack([x[i] * int(length[i]) for i in range(9)]).float(),
            index // 4 / 2,
        ],
        1,
    )
    assert torch.equal(out, expected)
