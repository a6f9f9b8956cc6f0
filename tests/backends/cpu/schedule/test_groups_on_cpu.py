"""Groups of rows are shared by several programs; configs of other targets' forms stay usable."""

from __future__ import annotations

import pytest
import torch

import tilesmith as helion
from examples.grouped_gemm import grouped_gemm
from examples.matmul import matmul
from tests.conformance.case import randn
from tilesmith.numerics.compare import check_against

Arguments = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def groups(*lengths: int, k: int = 45, n: int = 70) -> Arguments:
    offsets = torch.tensor([0, *lengths]).cumsum(0).to(torch.int32)
    return randn(int(offsets[-1]), k), randn(k, n), offsets


@pytest.mark.parametrize(
    "lengths", [(2, 0), (0, 0, 0), (63, 64, 65), (3, 1009, 0, 130), (256, 255, 257, 1, 2)], ids=str
)
@pytest.mark.parametrize("shares", [1, 4, 16, 64])
def test_every_row_belongs_to_one_program(lengths: tuple[int, ...], shares: int) -> None:
    args = groups(*lengths)
    kernel = helion.kernel(grouped_gemm.fn, static_shapes=False, backend="cpu")
    config = helion.Config(structure="spread_loops", block_sizes=[16, 32, 32, shares])
    bound = kernel.bind(args)
    assert "shares in range(0, 64" in bound.to_code(config)
    found = bound.compile_config(config)(*args)
    check_against(found, args[0].double() @ args[1].double(), reduction_length=45)


def test_defaults_share_a_group_where_the_number_of_groups_is_small() -> None:
    def default(count: int, static_shapes: bool) -> helion.Config:
        kernel = helion.kernel(grouped_gemm.fn, static_shapes=static_shapes)
        bound = kernel.bind(groups(*[64] * count), target="cpu:avx512")
        return bound.config_spec.default_config()

    for config in (default(8, True), default(8, False)):
        assert config["structure"] == "spread_loops"
        assert config.block_sizes[0] == 64
    assert len(default(200, True).block_sizes) == 3


def test_the_form_of_another_target_is_left_out() -> None:
    x, y = randn(40, 30), randn(30, 50)
    bound = matmul.bind((x, y), target="cpu:avx512")
    config = helion.Config(structure="warp_roles", block_sizes=[16, 32, 32, 8])
    assert "tile_m=16, tile_n=32, tile_k=32" in bound.to_code(config)
