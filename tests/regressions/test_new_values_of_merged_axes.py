"""Accumulators as long as axes merged by a reshape, the tile's axis not the first of them."""

from __future__ import annotations

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.conformance.case import blocks, integers
from tests.host_backends import BACKENDS, on_backend


@helion.kernel
def largest_product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The groups of x share y: they are rows of one product."""
    out = torch.empty([x.size(0), x.size(1)], device=x.device)
    for t in hl.tile(x.size(1)):
        rows = x[:, t, :].reshape(2 * t.block_size, 8)
        best = hl.full([2 * t.block_size], float("-inf"))
        for u in hl.tile(y.size(0)):
            best = torch.maximum(best, hl.dot(rows, y[u, :].T).amax(1))
        out[:, t] = best.reshape(2, t.block_size)
    return out


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("rows", [1, 15, 16, 17])
def test_accumulator_fits_the_rows_of_all_groups(rows: int, backend: str) -> None:
    x, y = integers(-4, 5, 2, rows, 8).float(), integers(-4, 5, 21, 8, seed=1).float()
    bound = on_backend(largest_product, backend).bind((x, y))
    out = bound.compile_config(blocks(16, 16))(x, y)
    assert torch.equal(out, (x @ y.T).amax(-1))
