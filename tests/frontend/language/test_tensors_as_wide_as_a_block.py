"""Host tensors as wide as a registered block: in the traces for its size both are one axis."""

from __future__ import annotations

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl


def sums_beside_ones(x: torch.Tensor) -> torch.Tensor:
    """Rows are gathered in memory that is as wide as a block."""
    m, n = x.size()
    block = hl.register_block_size(n)
    out = torch.empty([m], dtype=x.dtype, device=x.device)
    parts = torch.zeros([m, block], dtype=x.dtype, device=x.device)
    for row in hl.tile(m):
        parts[row, :] = hl.full([row, block], 1.0, dtype=x.dtype)
        for column in hl.tile(n, block_size=block):
            hl.atomic_add(parts, [row, column], x[row, column])
        out[row] = parts[row, :].sum(-1)
    return out


def weighted_by_place(x: torch.Tensor) -> torch.Tensor:
    """A weight for each place in a tile."""
    block = hl.register_block_size(64)
    weights = torch.arange(block, device=x.device).to(x.dtype)
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0), block_size=block):
        out[tile] = x[tile] * weights[:]
    return out


@pytest.mark.parametrize("size", [64, 100, 128])
def test_a_block_that_is_stored_whole(size: int) -> None:
    x = torch.randn(5, size, dtype=torch.float64)
    kernel = helion.kernel(sums_beside_ones, config=helion.Config(block_sizes=[128, 4]))
    torch.testing.assert_close(kernel(x), x.sum(1) + 128)


def test_the_default_is_a_block_that_fits() -> None:
    x = torch.randn(5, 100, dtype=torch.float64)
    torch.testing.assert_close(helion.kernel(sums_beside_ones)(x), x.sum(1) + 128)


def test_a_block_that_does_not_fit_is_refused() -> None:
    kernel = helion.kernel(sums_beside_ones, config=helion.Config(block_sizes=[64, 4]))
    with pytest.raises(helion.exc.TileOutOfRange, match="`parts`, of size 64"):
        kernel(torch.randn(5, 100))


@pytest.mark.parametrize("block", [16, 64])
@pytest.mark.parametrize("size", [1, 64, 100])
def test_a_value_for_each_lane(block: int, size: int) -> None:
    x = torch.randn(size, dtype=torch.float64)
    kernel = helion.kernel(weighted_by_place, config=helion.Config(block_sizes=[block]))
    torch.testing.assert_close(kernel(x), x * (torch.arange(size) % block))
