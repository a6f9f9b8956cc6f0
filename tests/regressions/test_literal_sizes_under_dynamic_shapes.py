"""Sizes that host code gives as plain numbers are constants, also with dynamic shapes.

They were runtime sizes like any other, which match no device value of constant size.
"""

from __future__ import annotations

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.host_backends import BACKENDS, on_backend


@helion.kernel(static_shapes=False)
def pairs(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = x.new_empty([x.size(0), 2])
    for t in hl.tile(x.size(0)):
        out[t, :] = hl.join(x[t], y[t])
    return out


@helion.kernel(static_shapes=False)
def fours(x: torch.Tensor) -> torch.Tensor:
    rows = x.view(-1, 4)
    out = torch.empty_like(rows)
    for t in hl.tile(rows.size(0)):
        out[t, :] = rows[t, :] * hl.arange(4)
    return out


@helion.kernel(static_shapes=False)
def sums(x: torch.Tensor) -> torch.Tensor:
    out = torch.full([x.size(0), 3], 7.0)
    for t in hl.tile(x.size(0)):
        out[t, :] = x[t, :].sum(1, keepdim=True) * hl.arange(3)
    return out


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_literal_dimension_meets_a_constant_axis(backend: str) -> None:
    kernel = on_backend(pairs, backend)
    for n in (2, 5, 2, 9):
        x, y = torch.randn(n), torch.randn(n)
        assert torch.equal(kernel(x, y), torch.stack([x, y], 1))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_literal_size_of_a_view(backend: str) -> None:
    kernel = on_backend(fours, backend)
    for n in (4, 16, 400):
        x = torch.randn(n)
        assert torch.equal(kernel(x), x.view(-1, 4) * torch.arange(4))


@pytest.mark.parametrize("backend", BACKENDS)
def test_arguments_that_happen_to_have_that_size(backend: str) -> None:
    kernel = on_backend(sums, backend)
    for shape in ((3, 3), (5, 7), (7, 3), (3, 7), (3, 3), (2, 2)):
        x = torch.arange(shape[0] * shape[1], dtype=torch.float32).view(shape)
        assert torch.equal(kernel(x), x.sum(1, keepdim=True) * torch.arange(3))


@helion.kernel(static_shapes=False)
def padded(x: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    n = x.size(1)
    scaled = x.new_empty([x.size(0), 3])
    same = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        scaled[t, :] = x[t, :].sum(1, keepdim=True) * hl.arange(3) + k
        same[t, :] = x[t, :n] + hl.zeros([t, n])
    return scaled, same


@pytest.mark.parametrize("backend", BACKENDS)
def test_numbers_that_happen_to_be_that_size(backend: str) -> None:
    kernel = on_backend(padded, backend)
    for rows, columns, k in ((5, 3, 3), (3, 3, 2), (5, 7, 3), (3, 7, 3), (5, 3, 5), (4, 5, 9)):
        x = torch.arange(rows * columns, dtype=torch.float32).view(rows, columns)
        scaled, same = kernel(x, k)
        assert torch.equal(scaled, x.sum(1, keepdim=True) * torch.arange(3) + k)
        assert torch.equal(same, x)
