"""Default Configs: the formula for Hopper products, and what defaults must have everywhere."""

from __future__ import annotations

from random import Random

import pytest
import torch

import tilesmith as helion
from examples.matmul import matmul
from tests.schedule import programs
from tests.specs import config_spec
from tilesmith.targets import parse_target

TARGETS = ["cuda:80", "cuda:86", "cuda:90", "cuda:100", "hip:gfx942", "hip:gfx950", "cpu"]


def default(function, target="cuda:90"):
    return config_spec(function, parse_target(target)).default_config()


@pytest.mark.parametrize(
    ("function", "blocks", "warps", "stages", "grouping"),
    [
        (programs.matmul(4096, 4096, 4096), [128, 256, 64], 8, 4, 8),
        (programs.matmul(1024, 1024, 1024), [64, 128, 128], 4, 4, 1),
        (programs.matmul(1536, 1536, 1536), [64, 128, 64], 4, 3, 4),
        (programs.matmul(2048, 1024, 4096), [128, 128, 64], 4, 5, 1),
        (programs.matmul(1024, 4096, 1024), [128, 256, 64], 8, 4, 8),
        (programs.matmul(512, 512, 512), [64, 64, 128], 4, 4, 1),
        (programs.matmul(16, 4096, 4096), [16, 32, 256], 4, 6, 1),
        (programs.matmul(64, 8192, 8192), [64, 64, 128], 4, 6, 1),
        (programs.matmul(20120, 1536, 512), [128, 128, 64], 4, 4, 8),
        (programs.matmul(3072, 3072, 3072), [128, 128, 64], 8, 5, 8),
        (programs.matmul(1024, 1024, 1024, "f32", "tf32"), [64, 64, 32], 2, 4, 4),
        (programs.matmul(2048, 2048, 2048, "f32", "tf32"), [256, 64, 32], 4, 3, 4),
        (programs.matmul(4096, 4096, 4096, "f32", "tf32"), [256, 64, 32], 4, 3, 4),
        (programs.matmul(1536, 1536, 1536, "f32", "tf32x3"), [128, 32, 32], 4, 3, 4),
        (programs.matmul(4096, 4096, 4096, "f32", "tf32x3"), [256, 64, 32], 8, 3, 4),
        (programs.matmul(16384, 1024, 1024), [128, 256, 64], 8, 4, 8),
        (programs.matmul(3000, 3001, 2999), [64, 128, 64], 4, 4, 4),
        (programs.matmul(5001, 1001, 1000), [128, 128, 64], 8, 3, 4),
        (programs.batched_matmul(4096, 256, 256, 256), [128, 256, 64], 8, 4, 1),
    ],
    ids=[
        "4096",
        "1024",
        "1536",
        "long_k",
        "wide",
        "512",
        "m16",
        "m64",
        "short_k",
        "no_waves",
        "tf32_1024",
        "tf32_2048",
        "tf32_4096",
        "tf32x3_1536",
        "tf32x3_4096",
        "tall",
        "odd",
        "odd_columns",
        "batch",
    ],
)
def test_hopper_matmul_vectors(function, blocks, warps, stages, grouping):
    config = default(function)
    assert config.block_sizes == blocks
    assert (config.num_warps, config.num_stages) == (warps, stages)
    assert config.l2_groupings == [grouping]


def test_strides_that_only_a_launch_knows_are_taken_for_aligned():
    dynamic = helion.kernel(matmul.fn, static_shapes=False)
    x = torch.empty(4096, 4096, dtype=torch.bfloat16)
    config = dynamic.bind((x, x), target="cuda:90").default_config()
    assert config.block_sizes == [128, 256, 64]


def test_tiles_of_one_matrix_follow_one_another():
    assert default(programs.batched_matmul()).loop_orders == [[1, 2, 0]]
    assert default(programs.attention(width=128)).loop_orders == [[0, 1]]
    assert default(programs.attention(width=64)).loop_orders == [[1, 0]]


@pytest.mark.parametrize(
    ("m", "n", "dtype", "blocks"),
    [
        (4096, 4096, "f32", [1, 1024]),
        (4096, 4096, "bf16", [1, 1024]),
        (100_000, 64, "f32", [16, 64]),
        (1, 1, "f32", [1, 1]),
        (3, 5, "f32", [4, 8]),
        (1, 1 << 26, "f32", [1, 1024]),
    ],
)
def test_pointwise_is_wide_along_memory(m, n, dtype, blocks):
    config = default(programs.pointwise(m, n, dtype))
    assert config.block_sizes == blocks
    assert config.num_warps == 4


def test_transposing_kernel_gets_square_tiles():
    assert default(programs.pointwise(transposed=True)).block_sizes == [64, 64]


@pytest.mark.parametrize(
    ("n", "rows", "warps"), [(64, 32, 4), (1024, 2, 2), (2560, 1, 4), (8192, 1, 4), (30000, 1, 32)]
)
def test_rows_are_resident_with_warps_by_their_length(n, rows, warps):
    config = default(programs.softmax(65536, n))
    assert config.block_sizes == [rows]
    assert config.num_warps == warps


def test_rows_too_long_for_registers_are_walked_in_chunks():
    for n, chunk in ((32768, None), (32769, 16384), (1 << 22, 16384)):
        config = default(programs.softmax(100, n))
        assert config.reduction_loops == [chunk]
        assert config.num_warps == 32


def test_few_rows_get_one_program_each():
    assert default(programs.softmax(132, 64)).block_sizes == [1]


def test_inner_tiles_of_a_reduction_are_long():
    assert default(programs.row_sum_by_tiles(512, 100_000)).block_sizes == [1, 4096]
    assert default(programs.row_sum_by_tiles(512, 100)).block_sizes == [1, 128]


@pytest.mark.parametrize(
    ("n", "dtype", "blocks", "warps", "stages"),
    [
        (512, "f32", [16, 32], 4, 2),
        (1024, "f32", [16, 16], 16, 4),
    ],
)
def test_row_reductions_of_fp32_products(n, dtype, blocks, warps, stages):
    config = default(programs.matmul_row_norm(131072, n, 512, dtype))
    assert config.block_sizes == blocks
    operands = "pointer" if n == 512 else "tensor_descriptor"
    assert config.indexing == [operands, operands, "pointer"]
    assert (config.num_warps, config.num_stages, config.pid_type) == (warps, stages, "flat")


@pytest.mark.parametrize(
    ("n", "blocks", "stages"),
    [(256, [128, 64], 3), (512, [64, 32], 4), (1024, [32, 32], 3), (2048, [16, 16], 3)],
)
def test_many_row_reductions_of_products_run_in_a_program_loop(n, blocks, stages):
    config = default(programs.matmul_row_norm(131072, n, 512, "bf16"))
    assert (config.block_sizes, config.num_stages, config.num_warps) == (blocks, stages, 8)
    # The fp32 result leaves no room for a copy of it.
    assert config.indexing == ["tensor_descriptor", "tensor_descriptor", "pointer"]
    assert (config.pid_type, config.range_flattens[0]) == ("persistent_interleaved", True)


@pytest.mark.parametrize(("m", "n", "warps"), [(1024, 1024, 8), (131072, 4096, 16)])
def test_few_or_very_long_rows_of_products_have_a_program_each(m, n, warps):
    config = default(programs.matmul_row_norm(m, n, 512, "bf16"))
    assert (config.pid_type, config.num_warps) == ("flat", warps)
    stored = "tensor_descriptor" if n == 1024 else "pointer"
    assert config.indexing == ["tensor_descriptor", "tensor_descriptor", stored]


def test_small_products_are_spread_over_the_device():
    assert default(programs.matmul(256, 256, 256)).block_sizes == [64, 16, 64]
    assert default(programs.matmul(384, 384, 384)).block_sizes == [64, 32, 64]
    assert default(programs.matmul(512, 512, 512)).block_sizes == [64, 64, 128]


def test_attention():
    config = default(programs.attention(width=128))
    assert config.block_sizes == [256, 64]
    assert (config.num_warps, config.num_stages) == (8, 3)
    older = default(programs.attention(width=128), "cuda:80")
    assert (older.block_sizes, older.num_warps, older.num_stages) == ([128, 64], 8, 2)
    narrow = default(programs.attention(width=64))
    assert (narrow.block_sizes, narrow.num_warps) == ([128, 64], 4)
    assert default(programs.attention(16, 1024, 64)).block_sizes == [64, 128]


def test_split_k_blocks_stay_within_the_split():
    config = default(programs.split_k(k_block=64))
    assert config.block_sizes[2] <= 64


def test_amd_products_fit_their_local_memory_and_name_an_instruction():
    config = default(programs.matmul(4096, 4096, 4096), "hip:gfx942")
    assert config.block_sizes == [128, 128, 64]
    assert (config.num_warps, config.num_stages) == (4, 2)
    assert config.matrix_instr_nonkdim == 16


def test_exact_products_are_short_in_k():
    config = default(programs.matmul(4096, 4096, 4096, "f32", "ieee"))
    assert config.block_sizes == [64, 64, 32]
    assert config.num_warps == 4


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", programs.ALL)
def test_defaults_and_seeds_are_valid_and_fit(name, target):
    spec = config_spec(programs.ALL[name](), parse_target(target))
    seeds = spec.seed_configs()
    assert seeds[0] == spec.default_config()
    assert len(set(seeds)) == len(seeds)
    for config in (*seeds, spec.base_config()):
        assert spec.normalize(config) == config
        assert spec.resources(config).fits


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 31, 97, 1000, 100_003])
def test_defaults_fit_at_boundary_sizes(size, target):
    for function in (
        programs.matmul(size, size, size),
        programs.matmul(size, 64, 97, "f32"),
        programs.pointwise(size, 33),
        programs.softmax(33, size),
        programs.attention(2, size, 80),
    ):
        spec = config_spec(function, parse_target(target))
        assert spec.resources(spec.default_config()).has_legal_tiles


@pytest.mark.parametrize("name", [*programs.ALL, "long_softmax"])
def test_minimized_config_stands_for_the_same_choice(name):
    function = programs.softmax(100, 40_000) if name == "long_softmax" else programs.ALL[name]()
    spec = config_spec(function, parse_target("cuda:90"))
    rng = Random(name)
    for config in (*spec.seed_configs(), *(spec.random_config(rng) for _ in range(10))):
        short = config.minimize(spec)
        assert "block_sizes" in short
        assert spec.normalize(short) == config
        assert len(short) <= len(config)
