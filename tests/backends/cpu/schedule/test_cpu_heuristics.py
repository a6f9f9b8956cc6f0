"""Defaults on CPUs, rule by rule."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from examples.matmul import matmul_bwd
from tests.backends.cpu.schedule.cpu_runs import CASES, MACHINE, spec_at
from tests.ir_parser import parse_function
from tests.schedule import programs
from tests.specs import config_spec
from tilesmith.backends.cpu.schedule.rules import has_uneven_programs, largest_streamed_bytes
from tilesmith.schedule.facts.outline import FunctionOutline

SMALL_MACHINE = replace(
    MACHINE, arch="avx2", vector_lanes=8, l1_bytes=32 << 10, l2_bytes=512 << 10, num_sms=8
)
MIB = 1 << 20


def default(function, target=MACHINE):
    return config_spec(function, target).default_config()


@pytest.mark.parametrize(
    ("m", "n", "blocks"),
    [
        (4096, 4096, [16, 4096]),
        (1, 1 << 24, [1, 65536]),
        (1 << 24, 1, [65536, 1]),
        (100_000, 64, [1024, 64]),
        (64, 1 << 20, [4, 16384]),
        (1, 32_768, [1, 32_768]),
        (1, 32_769, [1, 16_384]),
        (181, 181, [256, 256]),
        (182, 182, [64, 256]),
        (0, 7, [1, 8]),
        (1, 1, [1, 1]),
    ],
)
def test_pointwise_programs_are_long_runs_of_memory(m, n, blocks):
    config = default(programs.pointwise(m, n))
    assert config.block_sizes == blocks
    assert config.loop_orders == [[1, 0]]


def test_more_cores_get_more_programs():
    assert default(programs.pointwise(1024, 1024)).block_sizes == [64, 1024]
    many = replace(MACHINE, num_sms=16)
    assert default(programs.pointwise(1024, 1024), many).block_sizes == [16, 1024]


@pytest.mark.parametrize(
    ("stride", "dtype", "blocks"),
    [
        (1000, "f32", [64, 64]),
        (1040, "f32", [64, 64]),  # 65 lines apart: all sets
        (1280, "f32", [128, 32]),
        (1536, "f32", [256, 16]),
        (4096, "f32", [256, 16]),
        (1024, "bf16", [256, 16]),
        (2048, "i8", [256, 16]),
    ],
)
def test_transposing_tiles_stay_in_the_first_cache(stride, dtype, blocks):
    function = programs.pointwise(stride, dtype=dtype, transposed=True)
    assert default(function).block_sizes == blocks


def test_lines_of_transposing_tiles_have_room_in_smaller_caches():
    function = programs.pointwise(transposed=True)
    assert default(function, SMALL_MACHINE).block_sizes == [512, 8]


@helion.kernel
def plus_transposed(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile_m, tile_n in hl.tile(out.shape):
        out[tile_m, tile_n] = x[tile_m, tile_n] - y[tile_n, tile_m].T
    return out


@pytest.mark.parametrize("shape", [(511, 1024), (1024, 513), (300, 2048)])
def test_narrow_transposing_tiles_compute_the_same(shape):
    x, y = torch.randn(shape), torch.randn(shape[::-1])
    assert torch.equal(plus_transposed(x, y), x - y.T)
    assert torch.equal(plus_transposed(y.T, x.T), y.T - x)


def test_inner_tiles_of_an_elementwise_kernel():
    outer, inner = default(programs.nested_tiles(1 << 20)).block_sizes
    assert inner <= outer
    assert (1 << 20) // outer >= 4 * MACHINE.num_sms


@pytest.mark.parametrize(
    ("m", "n", "rows"),
    [
        (4096, 2, 2048),
        (32_768, 2, 2048),
        (16_385, 2, 2048),
        (1000, 40, 64),
        (65_536, 16, 256),
        (65_536, 17, 128),
        (65_536, 255, 16),
        (65_536, 256, 1),
        (65_536, 1 << 20, 1),
        (16, 16, 16),
        (1, 16, 1),
    ],
)
def test_short_rows_share_a_program(m, n, rows):
    assert default(programs.softmax(m, n)).block_sizes == [rows]


def test_rows_of_any_length_stay_in_one_piece():
    for n in (32_000, 1 << 19, (1 << 19) + 1, 1 << 26):
        spec = config_spec(programs.softmax(64, n), MACHINE)
        assert spec.default_config().reduction_loops == [None]
        chunks = [config.reduction_loops for config in spec.seed_configs()]
        # Beyond the second cache a search may try a quarter of it at a time.
        assert ([131_072] in chunks) == (4 * n > MACHINE.l2_bytes)


def test_rows_longer_than_any_tile_are_walked_in_chunks():
    (chunk,) = default(programs.softmax(4, (1 << 26) + 1)).reduction_loops
    assert chunk is not None


@pytest.mark.parametrize(
    ("m", "n", "blocks"),
    [(512, 100_000, [1, 4096]), (512, 300, [1, 512]), (512, 100, [32, 128]), (512, 1, [64, 1])],
)
def test_the_users_own_loops_get_tiles_of_half_the_first_cache(m, n, blocks):
    assert default(programs.row_sum_by_tiles(m, n)).block_sizes == blocks


@pytest.mark.parametrize(
    ("size", "blocks"),
    [
        ((512, 128, 256), [1, 256, 16]),
        ((512, 128, 1000), [1, 512, 8]),
        ((512, 128, 64), [1, 64, 64]),
    ],
)
def test_added_rows_lie_side_by_side(size, blocks):
    assert spec_at("jagged_mean", size).default_config().block_sizes == blocks


@pytest.mark.parametrize(
    ("columns", "lanes"), [(100_000, 512), (2048, 256), (500, 64), (64, 64), (10, 16)]
)
def test_summed_columns_lie_side_by_side(columns, lanes):
    assert spec_at("sum_columns", (1000, columns)).default_config().block_sizes == [lanes]


@pytest.mark.parametrize(
    ("m", "n", "k", "dtype", "blocks", "schedule"),
    [
        (1024, 1024, 1024, "f32", [128, 512, 256], "dynamic"),
        (1024, 1024, 1024, "bf16", [128, 512, 256], "dynamic"),
        (4096, 4096, 4096, "f32", [128, 512, 256], "static"),
        (4096, 128, 1024, "f32", [256, 128, 256], "dynamic"),
        (512, 512, 512, "f32", [64, 512, 512], "dynamic"),
        (100, 100, 100, "f32", [64, 128, 128], "dynamic"),
        (1, 4096, 4096, "f32", [1, 512, 256], "dynamic"),
        (64, 1024, 64, "f32", [64, 512, 64], "dynamic"),
        (1, 1, 1, "f32", [1, 1, 1], "dynamic"),
    ],
)
def test_products_fill_the_caches_and_the_cores(m, n, k, dtype, blocks, schedule):
    config = default(programs.matmul(m, n, k, dtype))
    assert config.block_sizes == blocks
    assert config.cpu_schedule == schedule
    assert config.loop_orders == [[0, 1]]


def test_products_of_smaller_caches_and_more_cores():
    config = default(programs.matmul(1024, 1024, 1024, "f32"), SMALL_MACHINE)
    assert config.block_sizes == [64, 512, 256]
    tiny = replace(SMALL_MACHINE, l1_bytes=8 << 10)
    assert default(programs.matmul(dtype="f32"), tiny).block_sizes[2] == 128


def test_products_in_tile_registers_pack_for_themselves():
    tiles = replace(MACHINE, features="+amx-bf16,+amx-tile")
    assert tiles.has_matrix_tiles
    for dtype, rows in (("bf16", 256), ("f32", 128)):
        config = default(programs.matmul(1024, 1024, 1024, dtype), tiles)
        assert config.block_sizes[:2] == [rows, 512]


@pytest.mark.parametrize("side", [256, 1024])
def test_products_of_a_second_loop_get_tiles_like_those_of_the_first(side):
    x = torch.empty(side, side)
    bound = matmul_bwd.bind((x, x, x), target="cpu:avx512")
    first, second = (bound.config_spec.default_config().block_sizes[i : i + 3] for i in (0, 3))
    assert first == second
    assert (side // first[0]) * (side // first[1]) >= bound.target.num_sms


def test_pairs_of_bf16_take_twice_the_depth():
    pairs = replace(SMALL_MACHINE, arch="avx512", vector_lanes=16, features="+avx512bf16")
    assert pairs.has_pair_products
    for dtype, depth in (("f32", 256), ("bf16", 512)):
        assert default(programs.matmul(2048, 2048, 2048, dtype), pairs).block_sizes[2] == depth


def test_matrices_of_a_batch_come_one_after_the_other():
    config = default(programs.batched_matmul(64, 256, 256, 256))
    assert config.loop_orders == [[1, 2, 0]]
    assert config.block_sizes == [256, 256, 256]


def test_splits_of_a_product_keep_its_depth():
    assert default(programs.split_k(k_block=64)).block_sizes[2] == 64


@pytest.mark.parametrize(
    ("n", "blocks"), [(512, [64, 512]), (64, [256, 512]), (4096, [16, 512]), (65_536, [16, 512])]
)
def test_rows_of_a_product_that_are_reduced_fit_the_second_cache(n, blocks):
    assert default(programs.matmul_row_norm(8192, n, 512, "f32")).block_sizes == blocks


@pytest.mark.parametrize(
    ("heads", "length", "blocks"),
    [(8, 1024, [128, 128]), (1, 512, [64, 128]), (1, 100, [64, 128]), (128, 4096, [128, 128])],
)
def test_attention(heads, length, blocks):
    config = default(programs.attention(heads, length, 64, "f32"))
    assert config.block_sizes == blocks
    assert config.loop_orders == [[1, 0]]


def test_other_kernels_get_middling_tiles():
    for name in ("gather", "data_dependent"):
        use = config_spec(programs.ALL[name](), MACHINE)
        assert 64 <= use.resources(use.default_config()).tile_elements <= 65_536


@pytest.mark.parametrize("name", ["jagged_mean", "causal_attention"])
def test_programs_of_uneven_length_are_handed_out_one_by_one(name):
    size = {"jagged_mean": (512, 128, 256)}.get(name, (4, 256, 256, 64))
    spec = spec_at(name, size)
    assert has_uneven_programs(spec.outline)
    assert all(config.cpu_schedule == "dynamic" for config in spec.seed_configs())


@pytest.mark.parametrize("name", [name for name in programs.ALL if name != "data_dependent"])
def test_loops_over_the_tile_of_a_program_are_even(name):
    assert not has_uneven_programs(FunctionOutline(programs.ALL[name]()))


@pytest.mark.parametrize(
    ("function", "streamed"),
    [
        (programs.pointwise(4096, 4096), 64 * MIB),
        (programs.pointwise(4096, 4095), 64 * MIB - 16384),
        (programs.pointwise(4096, 4096, "bf16"), 32 * MIB),
        (programs.row_sum_by_tiles(1 << 24, 64), 64 * MIB),
        (programs.split_k(), 0),
    ],
)
def test_bytes_that_are_only_ever_stored(function, streamed):
    assert largest_streamed_bytes(FunctionOutline(function)) == streamed
    assert default(function).cpu_streaming_stores == (streamed >= 64 * MIB)


def _copy(index="%t", mask="none", source="x", shape=1 << 25):
    return parse_function(f"""func @copy {{
  param %x: tensor<f32[{shape}], strides=[1], alias=0> from "x"
  param %out: tensor<f32[{shape}], strides=[1], alias=1> from "out"
  block tile {{slot=0, extent=1024}}
  %c0 = full() {{value=0}} : i32[]
  %c1 = full() {{value=1024}} : i32[]
  grid([%c0], [%c1]) {{blocks=["tile"], slot=0}} (%i: i32[]) {{
    %t = tile_index(%i) {{block="tile"}} : i32[tile]
    %a = load(%{source}, none, [%t]) {{slot=0}} : f32[tile]
    %far = elementwise(%t, %t) {{fn="mul"}} : i32[tile]
    %some = elementwise(%t, %far) {{fn="lt"}} : bool[tile]
    store(%out, %a, {mask}, [{index}]) {{slot=1}}
  }}
}}
""")


def test_only_plain_stores_to_unread_memory_of_known_size_bypass_the_caches():
    assert default(_copy()).cpu_streaming_stores
    assert not default(_copy(source="out")).cpu_streaming_stores
    assert not default(_copy(mask="%some")).cpu_streaming_stores
    assert not default(_copy(index="%far")).cpu_streaming_stores


@pytest.mark.parametrize(
    ("name", "size", "blocks"),
    [
        ("add", (3, 5), [1, 16_384]),
        ("softmax", (3, 5), [16]),
        ("matmul", (3, 5, 7), [128, 512, 256]),
        ("long_sum_manual", (3, 5), [4096, 16]),
    ],
)
def test_small_first_calls_with_runtime_sizes_do_not_make_small_tiles(name, size, blocks):
    kernel = helion.kernel(CASES[name].kernel.fn, static_shapes=False)
    args = kernel.normalize_args(*CASES[name].make_inputs(size, torch.float32, "cpu"))
    assert default(kernel.bind(args).function).block_sizes == blocks
