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


@helion.kernel(static_shapes=False)
def rotated(x: torch.Tensor, cos: torch.Tensor) -> torch.Tensor:
    rows, half = x.size(0), x.size(1) // 2
    out = torch.empty_like(x)
    parts, outs = x.view(rows, 2, half), out.view(rows, 2, half)
    for t in hl.tile(rows):
        outs[t, 0, :] = parts[t, 1, :] * cos[t, :half]
        outs[t, 1, :] = parts[t, 0, :] * cos[t, :half]
    return out


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_number_that_is_one_meets_the_axis_it_made(backend: str) -> None:
    """Axes of one element are constants, numbers that are one were not: shapes did not match."""
    kernel = on_backend(rotated, backend)
    cos = torch.randn(5, 8)
    for width in (6, 2, 6, 2, 8):
        x = torch.randn(5, width)
        halves = x.view(5, 2, -1).flip(1) * cos[:, None, : width // 2]
        assert torch.equal(kernel(x, cos), halves.view(5, width))


@helion.kernel(static_shapes=False)
def numbered(x: torch.Tensor) -> torch.Tensor:
    n = hl.specialize(x.numel())
    out = torch.empty([n], device=x.device)
    for _ in hl.grid(1):
        out[:] = hl.arange(n) * 2
    return out


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_number_of_elements_can_be_specialised(backend: str) -> None:
    kernel = on_backend(numbered, backend)
    for rows, columns in ((4, 3), (1, 7), (4, 3), (6, 2), (5, 0), (2, 5)):
        x = torch.empty(rows, columns)
        assert torch.equal(kernel(x), torch.arange(x.numel()) * 2.0)
