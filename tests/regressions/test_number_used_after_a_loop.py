"""A number of the host whose first use is inside a loop may be used after the loop too."""

from __future__ import annotations

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.host_backends import BACKENDS, on_backend


@helion.kernel
def scaled_sums(x: torch.Tensor, scale: float) -> torch.Tensor:
    m, n = x.size()
    out = torch.empty([m], dtype=x.dtype, device=x.device)
    block_n = hl.register_block_size(n)
    for tile_m in hl.tile(m):
        acc = hl.zeros([tile_m], dtype=x.dtype)
        for tile_n in hl.tile(n, block_size=block_n):
            acc = acc + (x[tile_m, tile_n] * scale).sum(1) / block_n
        for tile_n in hl.tile(n, block_size=block_n):
            acc = acc + (x[tile_m, tile_n] * scale).sum(1) / block_n
        out[tile_m] = acc * scale * block_n
    return out


@pytest.mark.parametrize("static_shapes", [True, False])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_loops_and_what_follows_share_numbers(
    dtype: torch.dtype, backend: str, static_shapes: bool
) -> None:
    x = torch.arange(37 * 21, dtype=dtype).reshape(37, 21)
    kernel = on_backend(scaled_sums, backend, static_shapes=static_shapes)
    out = kernel.bind((x, 0.5)).compile_config(helion.Config(block_sizes=[8, 16]))(x, 0.5)
    assert torch.equal(out, x.sum(1) / 2)
