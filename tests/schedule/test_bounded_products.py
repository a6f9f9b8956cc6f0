"""Products whose tiles the source fixes or bounds below what a device likes have defaults."""

from __future__ import annotations

import pytest
import torch

import tilesmith
import tilesmith.language as hl
from tilesmith.numerics.compare import check_against


@tilesmith.kernel
def with_few_rows(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    rows = hl.register_block_size(1, 8)
    out = torch.empty([x.size(0), y.size(1)], dtype=torch.float32)
    for tile_m, tile_n in hl.tile([x.size(0), y.size(1)], block_size=[rows, None]):
        acc = hl.zeros([tile_m, tile_n])
        for tile_k in hl.tile(x.size(1)):
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, tile_n])
        out[tile_m, tile_n] = acc
    return out


@tilesmith.kernel
def with_fixed_tiles(
    x: torch.Tensor, y: torch.Tensor, rows: hl.constexpr, columns: hl.constexpr
) -> torch.Tensor:
    out = torch.empty([x.size(0), y.size(1)], dtype=torch.float32)
    for tile_m, tile_n in hl.tile([x.size(0), y.size(1)], block_size=[rows, columns]):
        acc = hl.zeros([tile_m, tile_n])
        for tile_k in hl.tile(x.size(1)):
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, tile_n])
        out[tile_m, tile_n] = acc
    return out


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("target", ["cuda:90", "cuda:80", "hip:gfx942", "cpu"])
def test_bounds_of_the_source_come_before_what_suits_a_device(dtype, target):
    x = torch.ones(64, 64, dtype=dtype)
    bound = with_few_rows.bind((x, x), target=target)
    assert bound.config_spec.default_config().block_sizes[0] <= 8
    assert bound.to_code()


@pytest.mark.parametrize(("rows", "columns"), [(8, 8), (16, 64), (64, 512), (64, 64)])
def test_fixed_tiles_that_no_group_of_warps_can_share_get_the_plain_form(rows, columns):
    x = torch.ones(512, 512, dtype=torch.bfloat16)
    bound = with_fixed_tiles.bind((x, x, rows, columns), target="cuda:90")
    config = bound.config_spec.default_config()
    assert bound.config_spec.normalize(config) == config
    assert bound.to_code()


def test_few_rows_give_the_product():
    x, y = torch.randn(70, 50), torch.randn(50, 40)
    check_against(with_few_rows(x, y), x.double() @ y.double(), reduction_length=50)
