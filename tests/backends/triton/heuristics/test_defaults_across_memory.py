"""Default Configs of kernels whose reduced or looped axis does not run along memory."""

from __future__ import annotations

import pytest
import torch

import tilesmith
import tilesmith.language as hl
from examples.embedding import embedding
from examples.fused_linear_jsd import recomputing_linear_jsd
from examples.grpo_loss import grpo_loss_bwd
from examples.jagged_mean import jagged_mean
from examples.jagged_softmax import jagged_softmax
from examples.jagged_sum import jagged_sum
from examples.layer_norm import layer_norm_bwd
from examples.long_sum import long_sum_manual
from examples.sum import sum_columns
from tests.examples.cases import EXAMPLES
from tilesmith.backends.triton.build import compile_artifact
from tilesmith.schedule.config import Config
from tilesmith.schedule.spec import ConfigSpec

BF16 = torch.bfloat16
TARGETS = ["cuda:80", "cuda:90", "cuda:100", "hip:gfx942", "hip:gfx950"]


@tilesmith.kernel(static_shapes=True)
def walked_columns(x: torch.Tensor) -> torch.Tensor:
    """Sums over the first axis in a loop of its own."""
    m, n = x.size()
    out = torch.empty([n], dtype=torch.float32, device=x.device)
    for tile_n in hl.tile(n):
        total = hl.zeros([tile_n], dtype=torch.float32)
        for tile_m in hl.tile(m):
            total = total + x[tile_m, tile_n].to(torch.float32).sum(0)
        out[tile_n] = total
    return out


@tilesmith.kernel(static_shapes=True)
def middle_sums(x: torch.Tensor) -> torch.Tensor:
    """Sums over the middle axis, whole."""
    a, _, c = x.size()
    out = torch.empty([a, c], dtype=torch.float32, device=x.device)
    for tile_a, tile_c in hl.tile([a, c]):
        out[tile_a, tile_c] = x[tile_a, :, tile_c].to(torch.float32).sum(1)
    return out


def spec_of(kernel, *args, target: str = "cuda:90") -> ConfigSpec:
    return kernel.bind(args, target=target).config_spec


def blocks_of(kernel, *args) -> dict[str, int]:
    spec = spec_of(kernel, *args)
    return dict(zip(spec.entries.blocks, spec.default_config().block_sizes))


def sequences(count: int = 1024, features: int = 1024) -> tuple[torch.Tensor, torch.Tensor]:
    offsets = torch.arange(count + 1) * 100
    return torch.empty(100 * count, features, dtype=BF16), offsets


@pytest.mark.parametrize(("kernel", "columns"), [(jagged_sum, 128), (jagged_softmax, 64)])
def test_packed_rows_are_read_in_wide_pieces(kernel, columns: int):
    spec = spec_of(kernel, *sequences())
    _, features, *rows = spec.default_config().block_sizes
    assert features == columns
    assert all(16 <= size <= 128 for size in rows)
    narrow = Config.from_dict({**spec.default_config(), "block_sizes": [1, 1, *[4096] * len(rows)]})
    assert 4 * spec.predict(spec.default_config()).total_ms < spec.predict(narrow).total_ms


def test_both_inner_axes_of_packed_rows_share_a_tile():
    values, offsets = sequences(features=256)
    blocks = blocks_of(jagged_mean, values, offsets, torch.ones(1024, dtype=torch.int64))
    assert blocks == {"tile_s": 1, "tile_f": 128, "tile_r": 64}


def test_few_sequences_have_more_programs_or_more_columns_at_a_time():
    values, offsets = sequences(112, 256)
    assert blocks_of(jagged_sum, values, offsets) == {"tile_s": 1, "tile_f": 32, "tile_r": 128}
    means = blocks_of(jagged_mean, values, offsets, torch.ones(112, dtype=torch.int64))
    assert means == {"tile_s": 1, "tile_f": 256, "tile_r": 64}


@pytest.mark.parametrize(("features", "width"), [(1, 1), (5, 8), (31, 32), (33, 64), (128, 128)])
def test_few_features_are_taken_whole(features, width):
    assert blocks_of(jagged_sum, *sequences(4096, features))["tile_f"] == width


@pytest.mark.parametrize(("n", "width"), [(64, 32), (4096, 32), (16384, 64), (1 << 20, 128)])
def test_columns_are_narrower_where_programs_are_few(n, width):
    x = torch.empty(512, n, dtype=BF16)
    assert blocks_of(walked_columns, x) == {"tile_n": width, "tile_m": 8192 // width}
    assert blocks_of(sum_columns, x) == {"tile_n": width}


def test_long_columns_are_walked_in_chunks_and_short_ones_are_not():
    config = spec_of(sum_columns, torch.empty(4096, 4096, dtype=BF16)).default_config()
    assert (config.reduction_loops, config.num_warps) == ([1024], 16)
    many = spec_of(sum_columns, torch.empty(4096, 1 << 20, dtype=BF16)).default_config()
    assert (many.reduction_loops, many.num_warps) == ([128], 8)
    short = spec_of(sum_columns, torch.empty(16, 4096, dtype=BF16)).default_config()
    assert (short.reduction_loops, short.num_warps) == ([None], 1)


def test_short_columns_leave_room_for_other_rows():
    assert blocks_of(middle_sums, torch.empty(8192, 8, 4096)) == {"tile_a": 16, "tile_c": 128}
    assert blocks_of(middle_sums, torch.empty(2, 8, 4096)) == {"tile_a": 1, "tile_c": 32}


def test_reductions_along_memory_keep_their_schedule():
    assert blocks_of(long_sum_manual, torch.empty(4096, 16384)) == {"block_n": 4096, "tile_m": 1}


@pytest.mark.parametrize(
    ("rows", "length", "share"), [(4096, 8192, 32), (4096, 1024, 16), (100, 8192, 1)]
)
def test_programs_that_add_up_rows_have_a_share_of_them(rows, length, share):
    x, weight, row = torch.empty(rows, length), torch.empty(length), torch.empty(rows)
    assert blocks_of(layer_norm_bwd, x, x, weight, row, row)["block_m"] == share


def test_small_tensors_do_not_make_elementwise_tiles_square():
    table, ids = torch.empty(1000, 4096, dtype=BF16), torch.zeros(16384, dtype=torch.int64)
    assert blocks_of(embedding, ids, table)["tile_d"] >= 1024
    assert grpo_blocks()["tile_v"] >= 256


def grpo_blocks() -> dict[str, int]:
    case = next(case for case in EXAMPLES if case.name == "grpo_loss_bwd")
    assert case.kernel is grpo_loss_bwd
    return blocks_of(grpo_loss_bwd, *case.make_inputs((3, 64, 4096), BF16, "cpu"))


def test_rows_of_products_that_are_walked_fill_the_device():
    args = [torch.empty(shape, dtype=BF16) for shape in [(4096, 512), (32000, 512)] * 2]
    spec = spec_of(recomputing_linear_jsd, *args)
    blocks = dict(zip(spec.entries.blocks, spec.default_config().block_sizes))
    assert blocks["tile_n"] == 32
    assert blocks["block_v"] == 256
    assert spec.default_config().num_warps == 8


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("size", [1, 31, 97, 1000])
def test_defaults_fit_every_target(size, target):
    for kernel, args in (
        (jagged_sum, sequences(size, size)),
        (jagged_softmax, sequences(size, size)),
        (walked_columns, (torch.empty(size, size),)),
        (sum_columns, (torch.empty(size, size),)),
        (middle_sums, (torch.empty(size, 7, size),)),
    ):
        spec = spec_of(kernel, *args, target=target)
        config = spec.default_config()
        assert spec.normalize(config) == config
        assert spec.resources(config).fits


def check_that_default_compiles(kernel, args):
    bound = kernel.bind(args, target="cuda:90")
    assert compile_artifact(bound.to_artifact(bound.config_spec.default_config())).binary


def test_defaults_across_memory_compile():
    check_that_default_compiles(sum_columns, (torch.empty(4096, 4096, dtype=BF16),))


@pytest.mark.full
def test_defaults_of_jagged_rows_compile():
    # Ptxas takes six seconds; small ones are compiled as an example.
    check_that_default_compiles(jagged_softmax, sequences(64, 1024))
