"""Defaults that hide what a program waits for: ends of tiles, stores, other programs and warps."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tilesmith as helion
from examples.fp8_gemm import FP8, fp8_gemm


def default(kernel: Any, *arguments: Any) -> Any:
    bound = helion.kernel(kernel.fn).bind(arguments, target="cuda:90")
    return bound.default_config()


def scaled(m: int, k: int, n: int, *, is_along: bool = True) -> tuple[torch.Tensor, ...]:
    """Factors in fp8, the second one along the contraction or across it, and their scales."""
    x = torch.empty(m, k, dtype=FP8, device="meta")
    y = torch.empty(n, k, dtype=FP8, device="meta").T
    scale = torch.empty([], device="meta")
    return x, y if is_along else torch.empty(k, n, dtype=FP8, device="meta"), scale, scale


@pytest.mark.parametrize("size", [(4096, 4096, 4096), (16384, 8192, 1280)])
def test_large_products_of_fp8_load_a_tile_while_they_store_another(size: tuple[int, int, int]):
    config = default(fp8_gemm, *scaled(*size))
    assert config.block_sizes == [128, 256, 128]
    assert config.pid_type == "persistent_interleaved"
    assert config.indexing == ["tensor_descriptor"] * 2 + ["pointer"] * 2 + ["tensor_descriptor"]
    assert config["epilogue_subtile"] == 2


@pytest.mark.parametrize(
    ("size", "is_along"), [((2048, 2048, 2048), True), ((4096, 4096, 4096), False)]
)
def test_other_products_of_fp8_keep_their_pointers(size: tuple[int, int, int], is_along: bool):
    """Programs with one tile each, and factors that are not as the units want them."""
    config = default(fp8_gemm, *scaled(*size, is_along=is_along))
    assert set(config.indexing) == {"pointer"}
    assert config.pid_type == "flat"
