"""Defaults of kernels that move memory: one line, few warps, shares of rows that come ahead."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from examples.dot_compress import dot_compress_bwd, dot_compress_fwd
from examples.embedding import embedding
from examples.geglu import geglu
from examples.jagged_sum import jagged_sum
from examples.jsd import jsd
from examples.kl_div import kl_div
from examples.layer_norm import layer_norm_bwd, layer_norm_fwd
from examples.long_sum import long_sum_manual
from examples.low_mem_dropout import low_mem_dropout
from examples.rms_norm import rms_norm
from examples.rope import angles, rope
from examples.welford import welford
from tilesmith import Config

BF16 = torch.bfloat16


def default(kernel: Any, *arguments: Any) -> Config:
    bound = kernel.bind(kernel.normalize_args(*arguments), target="cuda:90")
    return bound.config_spec.default_config()


def test_elements_in_the_order_of_memory_are_one_line() -> None:
    x = torch.empty(4, 512, 11008, dtype=BF16)
    config = default(geglu, x, x)
    assert (config["flatten_loops"], config.block_sizes) == ([True], [1, 1, 1024])
    assert default(geglu, x.transpose(0, 1), x.transpose(0, 1))["flatten_loops"] == [False]


def test_rows_looked_up_share_a_program() -> None:
    ids, table = torch.zeros(16384, dtype=torch.int64), torch.empty(1000, 768, dtype=BF16)
    assert default(embedding, ids, table).block_sizes == [2, 1024]


def test_threads_of_programs_with_many_tensors_have_four_elements() -> None:
    q, k = torch.empty(1, 32, 4096, 128, dtype=BF16), torch.empty(1, 8, 4096, 128, dtype=BF16)
    config = default(rope, q, k, *angles(4096, 128, "cpu", BF16))
    assert (config.block_sizes, config.num_warps) == ([1, 4], 2)


@pytest.mark.parametrize(("length", "warps"), [(1024, 1), (1536, 2), (2048, 2), (4096, 4)])
def test_rows_that_fit_one_step_have_few_warps(length: int, warps: int) -> None:
    x, weight = torch.empty(262_144, length, dtype=BF16), torch.empty(length, dtype=BF16)
    config = default(welford, x, weight, weight)
    assert (config.block_sizes[0], config.num_warps) == (1 << (length - 1).bit_length(), warps)


def test_few_rows_keep_all_their_warps() -> None:
    x, weight = torch.empty(256, 2048, dtype=BF16), torch.empty(2048, dtype=BF16)
    assert default(welford, x, weight, weight).num_warps == 8


def test_steps_with_many_functions_are_short() -> None:
    x = torch.empty(8192, 16384)
    steps = [default(kernel, x, x) for kernel in (jsd, kl_div)]
    assert [(one.block_sizes[-1], one.num_warps) for one in steps] == [(1024, 8), (4096, 8)]
    assert default(long_sum_manual, x).num_warps == 8


@pytest.mark.parametrize(
    ("length", "rows", "warps"), [(1024, [16, 2], 4), (4096, [16, 1], 4), (8192, [32, 1], 16)]
)
def test_programs_that_walk_rows_load_the_next_ones(
    length: int, rows: list[int], warps: int
) -> None:
    x, weight = torch.empty(4096, length, dtype=BF16), torch.empty(length, dtype=BF16)
    config = default(layer_norm_bwd, x, x, weight, torch.empty(4096), torch.empty(4096))
    assert (config.block_sizes, config.num_warps) == (rows, warps)
    assert config["range_num_stages"] == [0, 4]


@pytest.mark.parametrize(("count", "warps"), [(512, 2), (32, 8)])
def test_programs_that_walk_columns_have_few_warps_where_they_are_many(
    count: int, warps: int
) -> None:
    offsets = torch.arange(count + 1) * 64
    assert default(jagged_sum, torch.empty(64 * count, 256, dtype=BF16), offsets).num_warps == warps


def test_neighbours_share_the_multiplications_of_a_random_number() -> None:
    x = torch.empty(4096, 1024, dtype=BF16)
    arguments = low_mem_dropout.normalize_args(0.25, x, 123)
    bound = low_mem_dropout.bind(arguments, target="cuda:90")
    text = bound.to_code(bound.config_spec.default_config(), form="ptx")
    # Sixteen elements a thread, of four counters, twenty products each.
    assert text.count("mul.hi.u32") <= 4 * 20


@pytest.mark.parametrize(("columns", "warps"), [(4096, (4, 4)), (8192, (8, 4))])
def test_rows_whose_threads_wait_once_have_more_warps(columns: int, warps: tuple[int, int]) -> None:
    x, weight = torch.empty(8192, columns, dtype=BF16), torch.empty(columns, dtype=BF16)
    found = default(rms_norm, x, weight), default(layer_norm_fwd, x, weight, weight)
    assert tuple(config.num_warps for config in found) == warps


@pytest.mark.parametrize(("batch", "stages", "rows"), [(64, 4, 32), (256, 3, 16)])
def test_programs_with_a_multiprocessor_each_have_its_shared_memory(
    batch: int, stages: int, rows: int
) -> None:
    shapes = ((batch, 1024, 256), (batch, 1024, 64), (batch, 256, 64))
    x, y, xty = (torch.empty(shape, dtype=BF16, device="meta") for shape in shapes)
    assert default(dot_compress_fwd, x, y).num_stages == stages
    assert default(dot_compress_bwd, y, x, y, xty).block_sizes == [64, rows]
