"""Default schedules of products that are no plain square, as an H200 said; none of them spills."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import tilesmith
import tilesmith.language as hl
from examples.bmm import bmm
from examples.grouped_gemm import grouped_gemm
from examples.matmul import matmul, matmul_bwd
from tests.backends.triton.heuristics.test_default_registers import stack_bytes
from tilesmith.jit.bound_kernel import BoundKernel

Shape = tuple[int, ...]


def empty(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def bind(kernel: Any, *args: Any) -> BoundKernel:
    return kernel.bind(kernel.normalize_args(*args), target="cuda:90")


def grouped(groups: int, rows: int, k: int, n: int) -> BoundKernel:
    offsets = empty(groups + 1, dtype=torch.int32)
    return bind(grouped_gemm, empty(rows, k), empty(k, n), offsets)


@tilesmith.kernel(static_shapes=False)
def experts(packed: torch.Tensor, stack: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """Each group has a matrix of its own."""
    k, n = hl.specialize((stack.size(1), stack.size(2)))
    out = torch.empty([packed.size(0), n], dtype=packed.dtype, device=packed.device)
    hl.specialize((packed.stride(0), stack.stride(0), stack.stride(1)))
    for group in hl.grid(offsets.size(0) - 1):
        for tile_m, tile_n in hl.tile([offsets[group], 0], [offsets[group + 1], n]):
            acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
            for tile_k in hl.tile(k):
                acc = torch.addmm(acc, packed[tile_m, tile_k], stack[group, tile_k, tile_n])
            out[tile_m, tile_n] = acc.to(packed.dtype)
    return out


def expert(groups: int, rows: int, k: int, n: int) -> BoundKernel:
    offsets = empty(groups + 1, dtype=torch.int32)
    return bind(experts, empty(rows, k), empty(groups, k, n), offsets)


def batch(b: int, m: int, k: int, n: int) -> BoundKernel:
    return bind(bmm, empty(b, m, k), empty(b, k, n))


def gradients(m: int, k: int, n: int) -> BoundKernel:
    return bind(matmul_bwd, empty(m, n), empty(m, k), empty(k, n))


@pytest.mark.parametrize("size", [(16, 6752, 4096, 4096), (4, 2665, 1024, 1024)], ids=str)
def test_tiles_of_groups_are_programs(size: Shape) -> None:
    bound = expert(*size)
    config = bound.config_spec.default_config()
    assert config["structure"] == "spread_loops"
    assert config.block_sizes == [128, 256, 64, 8]
    source = bound.to_artifact(config).source
    assert "packed_desc.load" in source
    assert "stack_desc.load" in source


@pytest.mark.parametrize(
    "size", [(64, 1024, 128, 1024), (256, 256, 64, 512), (96, 256, 64, 384)], ids=str
)
def test_short_sums_run_with_roles(size: Shape) -> None:
    config = batch(*size).config_spec.default_config()
    assert (config["structure"], config.block_sizes) == ("warp_roles", [1, 128, 128, 64])
    assert (config.num_warps, config.num_stages) == (8, 4)


@pytest.mark.parametrize(
    "size", [(16, 512, 512, 512), (8, 64, 64, 65536), (8, 256, 64, 256)], ids=str
)
def test_long_sums_narrow_results_and_few_bytes_do_not(size: Shape) -> None:
    assert batch(*size).config_spec.default_config().get("structure") is None


@pytest.mark.parametrize(
    ("size", "tile"),
    [
        ((20120, 512, 512), [128, 128, 64, 4096]),
        ((20120, 512, 1536), [128, 256, 64, 8192]),
        ((35916, 1536, 512), [128, 256, 64, 16384]),
    ],
    ids=str,
)
def test_gradients_of_tall_products_share_their_sum(size: Shape, tile: list[int]) -> None:
    bound = gradients(*size)
    config = bound.config_spec.default_config()
    assert (config["structure"], config.block_sizes[3:]) == ("sum_parts", tile)
    indexing = config.indexing
    assert indexing[:2] == indexing[5:7] == ["tensor_descriptor"] * 2
    # Programs with parts of the sum come first.
    source = bound.to_artifact(config).source
    assert source.index("tl.atomic_add") < source.index("grad_x +")


@pytest.mark.parametrize(
    "size", [(1024, 1024, 1024), (8192, 768, 768), (4096, 4096, 4096)], ids=str
)
def test_gradients_of_shorter_sums_do_not(size: Shape) -> None:
    assert gradients(*size).config_spec.default_config().get("structure") is None


@pytest.mark.parametrize(
    "bound",
    [
        batch(64, 1024, 128, 1024),
        gradients(20120, 512, 512),
        gradients(20120, 512, 1536),
        bind(matmul, empty(65536, 128), empty(128, 1024)),
    ],
    ids=["bmm", "narrow gradients", "wide gradients", "matmul"],
)
def test_none_spills(bound: BoundKernel, tmp_path: Path) -> None:
    assert stack_bytes(bound, tmp_path) == 0
