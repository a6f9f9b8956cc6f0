"""The variable of one top-level loop may be the variable of a nested loop in the next."""

from __future__ import annotations

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.host_backends import BACKENDS, on_backend


@helion.kernel
def both_sums(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    m, n = x.size()
    by_row = torch.empty([m], dtype=x.dtype, device=x.device)
    by_column = torch.empty([n], dtype=x.dtype, device=x.device)
    for tile_m in hl.tile(m):
        acc = hl.zeros([tile_m], dtype=x.dtype)
        for tile_n in hl.tile(n):
            acc = acc + x[tile_m, tile_n].sum(1)
        by_row[tile_m] = acc
    for tile_n in hl.tile(n):
        acc = hl.zeros([tile_n], dtype=x.dtype)
        for tile_m in hl.tile(m):
            acc = acc + x[tile_m, tile_n].sum(0)
        by_column[tile_n] = acc
    return by_row, by_column


@pytest.mark.parametrize("backend", BACKENDS)
def test_loops_may_swap_their_variables(backend: str) -> None:
    x = torch.arange(37 * 21, dtype=torch.float64).reshape(37, 21)
    by_row, by_column = on_backend(both_sums, backend)(x)
    assert torch.equal(by_row, x.sum(1))
    assert torch.equal(by_column, x.sum(0))
