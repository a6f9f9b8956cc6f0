"""Lanes of a nest go along what all its loops move through; values of a row are read once a row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl

BLOCKS = helion.Config(block_sizes=[32, 64])


def begins_with_row_values(x, bias, scale, taps: int):
    out = torch.empty_like(x)
    for rows, columns in hl.tile(x.size()):
        acc = hl.zeros([rows, columns]) + bias[rows][:, None] * scale[rows][:, None]
        for tap in range(taps):
            acc = acc + x[rows, columns] * tap
        out[rows, columns] = acc
    return out


def begins_with_column_values(x, bias, scale, taps: int):
    out = torch.empty_like(x)
    for rows, columns in hl.tile(x.size()):
        acc = hl.zeros([rows, columns]) + bias[columns][None, :] * scale[columns][None, :]
        for tap in range(taps):
            acc = acc + x[rows, columns] * tap
        out[rows, columns] = acc
    return out


def begins_transposed(x, bias, scale, taps: int):
    out = torch.empty_like(x)
    for rows, columns in hl.tile(x.size()):
        acc = x[columns, rows].T + bias[columns][None, :] * scale[rows][:, None]
        for tap in range(taps):
            acc = acc + x[rows, columns] * tap
        out[rows, columns] = acc
    return out


def loops_of_the_start(kernel: Callable[..., Any], size: int = 128) -> list[str]:
    """The loops of the first nest as `to_code` shows them, outermost first."""
    values = torch.randn(size)
    arguments = (torch.randn(size, size), values, values, 3)
    bound = helion.kernel(kernel, config=BLOCKS).bind(arguments)
    lines = [line.strip() for line in bound.to_code().splitlines()]
    loops = [line for line in lines if line.startswith(("for i", "for j"))]
    return loops[:2]


@pytest.mark.parametrize("kernel", [begins_with_row_values, begins_with_column_values])
def test_kept_tiles_are_filled_along_their_rows(kernel) -> None:
    outer, inner = loops_of_the_start(kernel)
    assert outer.startswith("for i in")
    assert inner.startswith("for j in")
    assert " by " in inner


def test_a_transposed_matrix_is_read_along_memory() -> None:
    outer, inner = loops_of_the_start(begins_transposed)
    assert outer.startswith("for j in")
    assert inner.startswith("for i in")


@pytest.mark.parametrize(
    "kernel", [begins_with_row_values, begins_with_column_values, begins_transposed]
)
@pytest.mark.parametrize("size", [1, 31, 64, 127])
def test_every_order_computes_the_same(kernel, size: int) -> None:
    x, bias, scale = torch.randn(size, size), torch.randn(size), torch.randn(size)
    out = helion.kernel(kernel, config=BLOCKS)(x, bias, scale, 3)
    x, bias, scale = x.double(), bias.double(), scale.double()
    start = {
        begins_with_row_values: (bias * scale)[:, None],
        begins_with_column_values: (bias * scale)[None, :],
        begins_transposed: x.T + bias[None, :] * scale[:, None],
    }[kernel]
    torch.testing.assert_close(out.double(), start + 3 * x, rtol=1e-5, atol=1e-5)
