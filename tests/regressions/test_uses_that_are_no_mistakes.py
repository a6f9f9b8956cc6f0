"""What looks like a mistake that messages are about, and is none."""

from __future__ import annotations

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl


@helion.kernel(static_shapes=True)
def doubled(x: torch.Tensor) -> torch.Tensor:
    n = x.size(0)
    out = torch.empty_like(x)
    block = hl.register_block_size(32, n)
    for tile in hl.tile(n, block_size=block):
        out[tile] = x[tile] * 2
    return out


@pytest.mark.parametrize("is_static", [True, False])
@pytest.mark.parametrize("size", [1, 5, 40])
def test_a_size_may_be_less_than_the_least_block(size: int, is_static: bool) -> None:
    kernel = helion.kernel(doubled.fn, static_shapes=is_static)
    x = torch.arange(size, dtype=torch.float32)
    assert torch.equal(kernel(x), x * 2)


@helion.kernel
def moved(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile].to("cuda").to("cpu", torch.float32) * 2
    return out


def test_a_device_is_not_taken_for_an_element_type() -> None:
    x = torch.arange(5, dtype=torch.float32)
    assert torch.equal(moved(x), x * 2)
