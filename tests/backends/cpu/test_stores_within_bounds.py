"""Nothing is stored before the first or after the last element of a tensor, or between its rows.

Results lie in the middle of larger storage, whose other elements must keep their mark.
"""

from __future__ import annotations

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.host_backends import lanes, on_backend

W = lanes()
LENGTHS = (1, W - 1, W, W + 1, 3 * W + 5)
MARK = -77
AROUND = 4 * W
dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.int8, torch.float64], ids=str)
lengths = pytest.mark.parametrize("length", LENGTHS)


@helion.kernel
def doubled(x, out):
    for t in hl.tile(x.size(0)):
        out[t] = x[t] * 2


@helion.kernel
def doubled_rows(x, out):
    for t, u in hl.tile(x.size()):
        out[t, u] = x[t, u] * 2


@helion.kernel
def chosen(x, out, limit):
    for t in hl.tile(x.size(0)):
        hl.store(out, [t], x[t], extra_mask=t.index < limit)


def numbers(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    count = torch.Size(shape).numel()
    return (torch.arange(count) % 50 + 1).to(dtype).view(shape)


@lengths
@dtypes
@pytest.mark.parametrize("block", [1, 8, 64])
def test_lines(length: int, dtype: torch.dtype, block: int) -> None:
    storage = torch.full((length + 2 * AROUND,), MARK, dtype=dtype)
    x, out = numbers(length, dtype=dtype), storage[AROUND : AROUND + length]
    bound = on_backend(doubled, "cpu").bind((x, out))
    bound.compile_config(helion.Config(block_sizes=[block]))(x, out)
    assert torch.equal(out, x * 2)
    assert (storage[:AROUND] == MARK).all()
    assert (storage[AROUND + length :] == MARK).all()


@lengths
@dtypes
def test_rows_with_gaps(length: int, dtype: torch.dtype) -> None:
    storage = torch.full((5, length + 3), MARK, dtype=dtype)
    x, out = numbers(3, length, dtype=dtype), storage[1:4, :length]
    bound = on_backend(doubled_rows, "cpu").bind((x, out))
    bound.compile_config(helion.Config(block_sizes=[2, 8]))(x, out)
    expected = torch.full_like(storage, MARK)
    expected[1:4, :length] = x * 2
    assert torch.equal(storage, expected)


@lengths
def test_lanes_that_are_masked_off(length: int) -> None:
    storage = torch.full((length + AROUND,), float(MARK))
    x = numbers(length, dtype=torch.float32)
    on_backend(chosen, "cpu")(x, storage[:length], length // 2)
    expected = torch.full_like(storage, MARK)
    expected[: length // 2] = x[: length // 2]
    assert torch.equal(storage, expected)
