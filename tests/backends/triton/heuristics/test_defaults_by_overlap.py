"""Defaults that hide what a program waits for: ends of tiles, stores, other programs and warps."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tilesmith as helion
from examples.cross_entropy import cross_entropy
from examples.dot_compress import dot_compress_bwd
from examples.fp8_gemm import FP8, fp8_gemm
from examples.fused_linear_jsd import linear
from examples.jagged_mean import jagged_mean
from examples.jagged_sum import jagged_sum
from examples.matmul import matmul
from examples.matmul_layernorm import matmul_layernorm
from examples.matmul_row_reduction import matmul_logsumexp, matmul_rms_norm
from examples.sum import sum_rows
from tilesmith.backends.triton.heuristics.row_launches import TWO_LAUNCHES
from tilesmith.backends.triton.heuristics.shared_rows import EXCHANGE
from tilesmith.backends.triton.warp_roles.rules import FORM


def default(kernel: Any, *arguments: Any) -> Any:
    bound = helion.kernel(kernel.fn).bind(arguments, target="cuda:90")
    return bound.default_config()


def scaled(m: int, k: int, n: int, *, is_along: bool = True) -> tuple[torch.Tensor, ...]:
    """Factors in fp8, the second one along the contraction or across it, and their scales."""
    x = torch.empty(m, k, dtype=FP8, device="meta")
    y = torch.empty(n, k, dtype=FP8, device="meta").T
    scale = torch.empty([], device="meta")
    return x, y if is_along else torch.empty(k, n, dtype=FP8, device="meta"), scale, scale


@pytest.mark.parametrize("size", [(4096, 4096, 4096), (16384, 8192, 1280), (12_288, 4096, 6144)])
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


def halves(*shape: int) -> torch.Tensor:
    return torch.empty(shape, dtype=torch.bfloat16, device="meta")


@pytest.mark.parametrize("size", [(2048, 4096, 128_256), (4096, 2048, 16_384)])
def test_words_are_stored_by_warps_with_roles(size: tuple[int, int, int]):
    """Also where the second factor is transposed, whose columns are never in parts."""
    m, k, n = size
    config = default(linear, halves(m, k), halves(n, k))
    assert config["structure"] == FORM
    assert config.block_sizes == [128, 256, 64]
    assert (config.num_warps, config.num_stages, config.l2_groupings) == (8, 4, [4])


@pytest.mark.parametrize(
    "size", [(1024, 4096, 1024), (2048, 16_384, 32_768)], ids=["one tile each", "long sums"]
)
def test_other_products_that_are_stored_as_words_need_no_roles(size: tuple[int, int, int]):
    m, k, n = size
    assert default(linear, halves(m, k), halves(n, k)).get("structure") != FORM


def test_results_of_halves_are_as_before():
    config = default(matmul, halves(2048, 4096), halves(128_256, 4096).T)
    assert config.get("structure") is None


def ragged(sequences: int, features: int) -> tuple[torch.Tensor, torch.Tensor]:
    offsets = torch.empty(sequences + 1, dtype=torch.int64, device="meta")
    return halves(sequences * 200, features), offsets


@pytest.mark.parametrize(
    ("sequences", "features", "tile", "warps"),
    [
        (512, 1024, [1, 1024, 16], 4),
        (512, 2048, [1, 1024, 16], 4),
        (600, 500, [1, 512, 16], 4),
        (512, 256, [1, 128, 64], 2),
        (128, 1024, [1, 128, 64], 8),
    ],
)
def test_programs_with_columns_of_their_own_sum_all_at_a_time(
    sequences: int, features: int, tile: list[int], warps: int
):
    values, offsets = ragged(sequences, features)
    counts = torch.empty(sequences, dtype=torch.int64, device="meta")
    config = default(jagged_mean, values, offsets, counts)
    assert (config.block_sizes, config.num_warps) == (tile, warps)


def test_programs_that_share_columns_take_some():
    assert default(jagged_sum, *ragged(512, 1024)).block_sizes == [1, 128, 64]


@pytest.mark.parametrize(("batch", "tile", "warps"), [(64, [64, 32], 4), (256, [64, 16], 8)])
def test_gradients_of_few_programs_have_few_warps(batch: int, tile: list[int], warps: int):
    x, y = halves(batch, 1024, 256), halves(batch, 1024, 64)
    config = default(dot_compress_bwd, y, x, y, halves(batch, 256, 64))
    assert (config.block_sizes, config.num_warps) == (tile, warps)


@pytest.mark.parametrize(
    ("rows", "columns", "warps"), [(16_384, 4096, 2), (12_288, 8192, 4), (64, 4096, 8)]
)
def test_rows_that_are_read_and_reduced_twice_have_few_warps(rows: int, columns: int, warps: int):
    """Where other programs do their work meanwhile."""
    labels = torch.empty(rows, dtype=torch.int64, device="meta")
    config = default(cross_entropy, halves(rows, columns), labels)
    assert (config.reduction_loops, config.num_warps) == ([None], warps)


def test_words_are_counted_by_their_bytes():
    config = default(matmul_logsumexp, halves(131_072, 3072), halves(3072, 2048))
    assert (config["structure"], config.num_warps) == (TWO_LAUNCHES, 2)


def test_rows_that_are_added_up_alone_have_the_warps_of_one_stream():
    assert default(sum_rows, halves(16_384, 4096)).num_warps == 8


@pytest.mark.parametrize(
    ("size", "has_roles"), [((131_072, 3072, 2048), True), ((512, 512, 512), False)]
)
def test_a_product_before_its_rows_may_have_roles(size: tuple[int, int, int], has_roles: bool):
    """It is stored as words: in the launch before, where it is a product like others."""
    m, k, n = size
    bound = helion.kernel(matmul_logsumexp.fn).bind((halves(m, k), halves(k, n)), target="cuda:90")
    artifact = bound.to_artifact()
    assert ("warp_specialize(" in artifact.before[0].source) == has_roles
    assert artifact.source.count("def launch_first(") == 1


@pytest.mark.parametrize(
    ("kernel", "size", "is_split"),
    [
        (matmul_layernorm, (131_072, 4096, 2048), True),
        (matmul_logsumexp, (16_384, 4096, 4096), True),
        # One reduction, four programs to a panel, a sum that is not deep, programs that are few.
        (matmul_rms_norm, (131_072, 8192, 2048), False),
        (matmul_logsumexp, (131_072, 6144, 1024), False),
        (matmul_layernorm, (131_072, 2048, 2048), False),
        (matmul_logsumexp, (1024, 4096, 4096), False),
    ],
)
def test_rows_have_a_launch_of_their_own_where_many_programs_would_wait_twice(
    kernel: Any, size: tuple[int, int, int], is_split: bool
):
    m, k, n = size
    weights = {matmul_layernorm: 2, matmul_rms_norm: 1}.get(kernel, 0)
    config = default(kernel, halves(m, k), halves(k, n), *[halves(n)] * weights)
    assert config["structure"] == (TWO_LAUNCHES if is_split else EXCHANGE)
