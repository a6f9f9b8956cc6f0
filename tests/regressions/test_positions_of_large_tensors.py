"""Positions that user code multiplies are 64-bit where a tensor needs it, or the setting says so.

They were always 32-bit: a flat index ``t.index * width`` into a large tensor wrapped around.
"""

from __future__ import annotations

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.host_backends import BACKENDS, on_backend

ROWS, WIDTH = 2050, 2**20


@helion.kernel
def pick(x: torch.Tensor, columns: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    n, width = x.shape
    flat = x.view(-1)
    by_tile = x.new_empty([n])
    by_range = x.new_empty([n])
    by_grid = x.new_empty([n])
    for t in hl.tile(n):
        by_tile[t] = flat[t.index * width + columns[t]]
        by_range[t] = flat[(t.begin + hl.arange(t)) * width + columns[t]]
    for i in hl.grid(n - 9, n):
        by_grid[i] = flat[i * width]
    return by_tile, by_range, by_grid


@helion.kernel
def multiples(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(0)], dtype=torch.int64, device=x.device)
    for t in hl.tile(x.size(0)):
        out[t] = t.index * 2**30
    return out


@pytest.mark.parametrize("static_shapes", [True, False])
@pytest.mark.parametrize("backend", BACKENDS)
def test_flat_index_into_more_than_two_billion_elements(backend: str, static_shapes: bool) -> None:
    # Only the few pages that are written take memory.
    x = torch.empty(ROWS * WIDTH, dtype=torch.int8).view(ROWS, WIDTH)
    rows = torch.arange(ROWS - 9, ROWS)
    columns = torch.full([ROWS], 5, dtype=torch.int32)
    x[rows, 5] = (rows % 100).to(torch.int8)
    x[rows, 0] = (rows % 50).to(torch.int8)
    found = on_backend(pick, backend, static_shapes=static_shapes)(x, columns)
    for result, column in zip(found, (5, 5, 0), strict=True):
        assert torch.equal(result[rows], x[rows, column])


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_setting_widens_positions(backend: str) -> None:
    found = on_backend(multiples, backend, index_dtype=torch.int64)(torch.ones(5))
    assert torch.equal(found, torch.arange(5) * 2**30)
    narrow = on_backend(multiples, backend)(torch.ones(5))
    assert torch.equal(narrow, (torch.arange(5, dtype=torch.int32) * 2**30).long())
