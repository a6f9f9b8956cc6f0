"""Tiles that change the order of their axes, and the shared memory that Triton takes for them."""

from __future__ import annotations

import pytest
import torch

import tilesmith
import tilesmith.language as hl
from tilesmith.backends.triton.build import compile_artifact
from tilesmith.schedule.config import Config


@tilesmith.kernel(static_shapes=True)
def turned(x: torch.Tensor) -> torch.Tensor:
    """Rows of the second axis first."""
    out = torch.empty([x.size(1), x.size(0), x.size(2)], dtype=x.dtype, device=x.device)
    for tile in hl.tile(x.size(1)):
        out[tile, :, :] = x[:, tile, :].permute(1, 0, 2) + 1
    return out


@pytest.mark.parametrize("rows", [2, 4, 8, 16])
def test_a_turned_tile_needs_no_more_than_all_of_it(rows: int) -> None:
    args = (torch.empty(16, 64, 128, dtype=torch.int64, device="meta"),)
    bound = turned.bind(args, target="cuda:90")
    config = bound.config_spec.normalize(Config(block_sizes=[rows], num_warps=32))
    estimated = bound.config_spec.resources(config)
    artifact = bound.specialization.artifact(config, bound.target)
    needed = compile_artifact(artifact).shared_bytes
    assert needed <= estimated.shared_bytes == rows * 16 * 128 * 8
    limit = bound.target.shared_bytes
    assert (needed <= limit) == estimated.fits_shared


def test_the_default_for_turned_tiles_fits() -> None:
    args = (torch.empty(64, 64, 512, dtype=torch.int64, device="meta"),)
    bound = turned.bind(args, target="cuda:90")
    config = bound.config_spec.normalize(bound.default_config())
    artifact = bound.specialization.artifact(config, bound.target)
    assert compile_artifact(artifact).shared_bytes <= bound.target.shared_bytes
