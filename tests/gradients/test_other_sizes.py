"""One kernel for many sizes has the right gradient for each of them.

Random programs found it: where the first call had two equal sizes, the gradient of the first call
with other ones was that of equal sizes.
"""

from __future__ import annotations

import gc
import weakref

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl


@helion.kernel(static_shapes=False)
def last_column(x: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    n, k = x.size(0), x.size(1)
    out = torch.zeros([rows.size(0), k, n])
    for i, j in hl.grid([rows.size(0), k]):
        out[i, j, :] = x[:, k - 1]
    return out


def test_sizes_that_were_equal_once_may_differ() -> None:
    for sizes in ((3, 3), (70, 16), (3, 3), (16, 70)):
        x = torch.ones(sizes, requires_grad=True)
        last_column(x, torch.ones(5)).sum().backward()
        wanted = torch.zeros(sizes)
        wanted[:, -1] = 5 * sizes[1]
        assert x.grad is not None
        assert torch.equal(x.grad, wanted), sizes


def test_arguments_are_not_kept() -> None:
    x = torch.ones([3, 3], requires_grad=True)
    scaled = x * 2
    last_column(scaled, torch.ones(5)).sum().backward()
    is_there = weakref.ref(scaled)
    del scaled
    gc.collect()
    assert is_there() is None


def copied(x: torch.Tensor) -> torch.Tensor:
    """A row over and over, but for the first and the last."""
    rows = x.size(1)
    out = torch.zeros([rows, x.size(0)], device=x.device)
    for tile in hl.tile(1, rows - 1):
        out[tile, :] = (x[:, rows - 1] * 2)[None, :]
    return out


@pytest.mark.parametrize("rows", [2, 3, 200, 5000])
def test_tiles_of_a_group_are_no_longer_than_groups_may_be(rows: int) -> None:
    kernel = helion.kernel(copied, static_shapes=False)
    x = torch.randn(3, rows, requires_grad=True)
    kernel(x).sum().backward()
    wanted = torch.zeros(3, rows)
    wanted[:, -1] = 2 * (rows - 2)
    assert x.grad is not None
    assert torch.equal(x.grad, wanted)
