"""Default tiles of narrow products, of products that store words, and of several long rows."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from examples.dot_compress import dot_compress_fwd
from examples.fused_linear_jsd import jsd_of_logits, linear
from examples.gather_gemv import gather_gemv
from examples.int4_gemm import int4_gemm
from examples.matmul import matmul
from examples.sum import sum_rows
from tilesmith.backends.triton.build import compile_artifact
from tilesmith.jit.bound_kernel import BoundKernel
from tilesmith.schedule.config import Config


def empty(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def bind(kernel: Any, *args: Any) -> BoundKernel:
    return kernel.bind(kernel.normalize_args(*args), target="cuda:90")


def default(kernel: Any, *args: Any) -> Config:
    bound = bind(kernel, *args)
    config = bound.config_spec.default_config()
    assert compile_artifact(bound.to_artifact(config)).binary
    return config


@pytest.mark.parametrize(("size", "depth"), [(1024, 1024), (4096, 2048)])
def test_one_column_takes_few_rows_and_much_of_each(size: int, depth: int) -> None:
    choices = empty(2, dtype=torch.int64)
    config = default(gather_gemv, empty(8, size, size), choices, empty(size))
    assert config["block_sizes"] == [4, depth]
    assert config["num_warps"] == 4


def test_one_column_has_no_axis_of_its_own() -> None:
    bound = bind(gather_gemv, empty(8, 1024, 1024), empty(2, dtype=torch.int64), empty(1024))
    code = bound.to_triton_code(bound.config_spec.default_config())
    assert "[:, None, :]" not in code


def test_rows_by_a_sum_fill_an_instruction() -> None:
    config = default(dot_compress_fwd, empty(1152, 3219, 256), empty(1152, 3219, 64))
    assert config["block_sizes"] == [64, 64]
    assert (config["num_warps"], config["num_stages"]) == (4, 3)


@pytest.mark.parametrize(
    ("rows", "length", "columns", "blocks"),
    [
        (1, 8192, 8192, [16, 64, 64, 1024]),
        (64, 8192, 1280, [64, 32, 64, 512]),
        (16, 2048, 8192, [16, 32, 128]),
        (16, 2048, 1280, [16, 16, 128]),
    ],
)
def test_few_rows_take_narrow_tiles_of_packed_weights_and_share_long_sums(
    rows: int, length: int, columns: int, blocks: list[int]
) -> None:
    weights = empty(length // 2, columns, dtype=torch.int8)
    config = default(int4_gemm, empty(rows, length), weights)
    assert config["block_sizes"] == blocks
    assert config.get("structure") == ("pair_parts" if len(blocks) == 4 else "pair_products")


def test_words_are_stored_through_the_copy_engine_in_twice_as_many_parts() -> None:
    words = default(linear, empty(2048, 4096), empty(8192, 4096))
    halves = default(matmul, empty(2048, 4096), empty(4096, 8192))
    assert set(words["indexing"]) == set(halves["indexing"]) == {"tensor_descriptor"}
    assert (words["epilogue_subtile"], halves["epilogue_subtile"]) == (4, 2)


def test_threads_hold_few_elements_of_rows_of_two_tensors() -> None:
    rows = empty(2048, 128256, dtype=torch.float32)
    two = bind(jsd_of_logits, rows, rows, 0.5, 1.0).config_spec.default_config()
    one = bind(sum_rows, rows).config_spec.default_config()
    assert two["reduction_loops"][0] == 8 * 32 * two["num_warps"]
    assert one.get("reduction_loops", [None])[0] != 8 * 32 * one["num_warps"]


@pytest.mark.parametrize(("rows", "columns", "measured"), [(16, 8192, 0.0304), (64, 1280, 0.0190)])
def test_parts_of_a_sum_are_as_many_as_there_are(rows: int, columns: int, measured: float) -> None:
    """The last program of a tile adds up its parts; measured in ms on an H200."""
    packed = empty(4096, columns, dtype=torch.int8)
    spec = bind(int4_gemm, empty(rows, 8192), packed).config_spec
    config = spec.default_config()
    assert config["structure"] == "pair_parts"
    assert 0.7 < spec.predict(config).total_ms / measured < 1.4
