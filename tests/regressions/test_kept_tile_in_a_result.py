"""A tile kept in the memory of a result is gone before the result is written, wherever it is read.

Native code keeps tiles that are used again in memory that a later store will fill.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl


@helion.kernel(backend="cpu")
def written_before(x, y, column, row, scaled, product):
    for _ in hl.grid(1):
        scaled[:] = x[:] * y[()]
        product[:, :] = column[:, :] * torch.exp2(row[:])


@helion.kernel(backend="cpu")
def read_transposed(x, out):
    for _ in hl.grid(1):
        e = torch.exp(x[:, :]) + torch.tanh(x[:, :])
        total = e.sum(0)
        out[:, :] = e.t() * total[None, :] + e


@helion.kernel(backend="cpu")
def read_after(x, out, other):
    for _ in hl.grid(1):
        e = torch.exp(x[:, :]) + torch.tanh(x[:, :])
        total = e.sum(1)
        out[:, :] = x[:, :] * total[:, None]
        other[:, :] = e * 2 + total[:, None]


def test_result_written_before_holds_no_later_tile() -> None:
    x, y, column, row = (torch.randn(size) for size in [(5,), (), (5, 1), (5,)])
    scaled, product = torch.empty(5), torch.empty(5, 5)
    written_before(x, y, column, row, scaled, product)
    torch.testing.assert_close(scaled, x * y, rtol=1e-6, atol=0)
    torch.testing.assert_close(product, column * torch.exp2(row), rtol=1e-6, atol=0)


@pytest.mark.parametrize("size", [8, 17])
def test_tile_read_elsewhere_is_not_overwritten(size: int) -> None:
    x = torch.randn(size, size)
    out = torch.empty(size, size)
    read_transposed(x, out)
    e = x.double().exp() + x.double().tanh()
    expected: Any = e.t() * e.sum(0)[None, :] + e
    torch.testing.assert_close(out, expected.float(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("size", [8, 17])
def test_tile_read_after_the_store_is_not_overwritten(size: int) -> None:
    x = torch.randn(size, size)
    out, other = torch.empty(size, size), torch.empty(size, size)
    read_after(x, out, other)
    e = x.double().exp() + x.double().tanh()
    total = e.sum(1)[:, None]
    torch.testing.assert_close(out, (x * total).float(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(other, (e * 2 + total).float(), rtol=1e-5, atol=1e-5)
