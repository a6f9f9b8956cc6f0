"""Forms that Triton 3.6 compiles to wrong code or to code that faults: none of them is emitted.

Each was found by running kernels on an H200; the examples named in the tests cover them there.
"""

from __future__ import annotations

import re
from random import Random
from typing import Any

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from examples import gather_gemv, int4_gemm
from examples.grouped_gemm import grouped_gemm, grouped_gemm_persistent
from examples.jagged_dense_add import jagged_dense_add
from examples.jagged_hstu_attn import jagged_hstu_attn
from examples.matmul import matmul
from tilesmith.backends.triton.build import compile_artifact

TARGET = "cuda:90"


def code(kernel: Any, args: tuple[Any, ...], **config: Any) -> str:
    bound = kernel.bind(args, target=TARGET)
    return bound.to_triton_code(helion.Config(**config) if config else bound.default_config())


@helion.kernel(static_shapes=True)
def outer_sums(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    m, n = x.size(0), y.size(1)
    out = torch.empty([m, n], dtype=x.dtype, device=x.device)
    for tile_m in hl.tile(m):
        out[tile_m, :] = (x[tile_m, :][:, :, None] * y[:, :][None, :, :]).sum(1)
    return out


@helion.kernel(static_shapes=True)
def product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(0), y.size(1)], dtype=torch.float32, device=x.device)
    for tile_m in hl.tile(x.size(0)):
        out[tile_m, :] = hl.dot(x[tile_m, :], y[:, :])
    return out


def test_a_sum_of_products_keeps_its_axis_last() -> None:
    """Triton makes a tf32 product of a sum over the middle axis, a wrong one for short axes."""
    text = code(outer_sums, (torch.randn(8, 2), torch.randn(2, 16)), block_sizes=[4])
    assert "tl.sum(tl.permute(mul, (0, 2, 1)), 2)" in text


def test_a_short_product_is_a_sum_over_the_last_axis() -> None:
    small = code(product, (torch.randn(8, 1), torch.randn(1, 16)))
    assert "tl.dot" not in small
    assert "tl.sum" not in small


def test_one_column_is_no_matrix_product() -> None:
    """The lanes of an instruction repeat a single column, and later sums count the copies."""
    args = (torch.randn(3, 32, 32).half(), torch.tensor([1]), torch.randn(32).half())
    text = code(gather_gemv.gather_gemv, args)
    assert "tl.dot" not in text
    assert "tl.sum" in text


@pytest.mark.parametrize("block", [16, 64])
def test_operands_widened_from_bytes_have_a_long_contracted_axis(block: int) -> None:
    args = (torch.randn(16, 128).bfloat16(), torch.zeros(64, 16, dtype=torch.int8))
    bound = int4_gemm.int4_gemm.bind(args, target=TARGET)
    assert bound.default_config()["block_sizes"][-1] * 2 >= 32
    assert "tl.dot" in bound.to_triton_code(helion.Config(block_sizes=[16, 16, block]))


def test_runtime_sizes_of_byte_products_are_padded_to_32() -> None:
    dynamic = helion.kernel(product.fn, static_shapes=False)
    args = (torch.ones(5, 7, dtype=torch.int8), torch.ones(7, 9, dtype=torch.int8))
    assert "max(triton.next_power_of_2(x_size_1), 32)" in code(dynamic, args)
    args = (torch.ones(5, 7), torch.ones(7, 9))
    assert "max(triton.next_power_of_2(x_size_1), 16)" in code(dynamic, args)


def test_blocks_that_begin_anywhere_use_no_descriptor() -> None:
    """TMA faults on a run that begins between two units of 16 bytes."""
    args = (torch.randn(9), torch.tensor([0, 4, 9]), torch.randn(2, 40))
    indexing = ["tensor_descriptor"] * 7
    text = code(jagged_dense_add, args, block_sizes=[2, 32, 32], indexing=indexing)
    # The first loop begins at 0 and ends anywhere, the second one begins there.
    assert "tl.range(0, end_c, TILE_C)" in text
    assert "tl.range(end_c, 40, TILE_C_1)" in text
    assert text.count("_desc.load(") == text.count("_desc.load([offset_r, offset_c])") == 1
    assert "dense_tile_1 = tl.load(" in text


def test_loops_with_loaded_bounds_inside_are_not_flattened() -> None:
    """The flattened loop reads the bounds of one turn too many."""
    offsets = torch.tensor([0, 3, 5], dtype=torch.int32)
    args = (torch.randn(5, 16), torch.randn(16, 16), offsets)
    spec = grouped_gemm_persistent.bind(args, target=TARGET).config_spec
    for seed in range(20):
        assert True not in spec.random_config(Random(seed))["range_flattens"][:2]


def unrolled(structure: str, loops: int) -> dict[str, Any]:
    return {"structure": structure, "range_unroll_factors": [0, *[3] * (loops - 1)]}


def test_loops_that_are_unrolled_end_where_they_begin_or_later() -> None:
    """Triton counts their turns without a sign.

    A program that is left without rows (its part begins past the end) took turns at indices below
    zero: of 2 rows in tiles of 256, three times unrolled, part 3 began at -256.
    """
    offsets = torch.tensor([0, 2])
    args = (*(torch.randn(2, 2, 16).half() for _ in range(3)), offsets, 2, 0.25)
    text = code(jagged_hstu_attn, args, block_sizes=[256, 128, 2], **unrolled("spread_loops", 3))
    assert "tl.range(add, tl.maximum(add, end_q), TILE_Q, " in text
    assert "tl.maximum(offsets_tile_i32, end_k)" in text
    args = (torch.randn(5, 16).half(), torch.randn(16, 16).half(), offsets.int())
    text = code(grouped_gemm, args, block_sizes=[256, 16, 16, 2], **unrolled("spread_loops", 3))
    assert "tl.range(add, tl.maximum(add, end_m), TILE_M, " in text
    assert "tl.range(0, 16, TILE_K, loop_unroll_factor=3)" in text


def test_programs_without_tiles_that_are_unrolled_end_where_they_begin() -> None:
    config = {"block_sizes": [16, 16, 16], "pid_type": "persistent_blocked"}
    args = (torch.randn(40, 16).half(), torch.randn(16, 40).half())
    text = code(matmul, args, **config, range_unroll_factors=[4, 0])
    assert "tl.maximum(first, min(first + chunk, num_tiles))" in text
    assert "tl.maximum" not in code(matmul, args, **config)


@helion.kernel
def column_sums(x: torch.Tensor, y: torch.Tensor, sums: torch.Tensor) -> torch.Tensor:
    out = torch.empty(x.size(0), y.size(1), dtype=x.dtype)
    for t in hl.tile(y.size(1)):
        column = x[:, :]
        out[:, t] = column @ y[:, t]
        sums[:, t] = torch.cumsum(column, 0).sum(1)[:, None]
    return out


def test_scans_of_a_column_are_scans_of_a_vector() -> None:
    """Triton 3.6 dies on a scan of a column that a product reads too."""
    args = (torch.ones(2, 1).bfloat16(), torch.ones(1, 64).bfloat16(), torch.zeros(2, 64))
    text = code(column_sums, args)
    assert "tl.cumsum(tl.reshape(" in text


@helion.kernel(static_shapes=True)
def peaks(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty(x.shape[:2], dtype=torch.float32, device=x.device)
    for tile_m, tile_n in hl.tile(out.shape):
        peak = hl.full([tile_m, tile_n], float("-inf"), dtype=torch.float32)
        for tile_k in hl.tile(x.size(2)):
            peak = torch.maximum(peak, x[tile_m, tile_n, tile_k].float().amax(-1))
        out[tile_m, tile_n] = peak
    return out


@pytest.mark.parametrize(("warps", "limit"), [(2, 255), (4, 255), (16, 128)])
def test_threads_with_large_tiles_are_told_how_many_registers_there_are(
    warps: int, limit: int
) -> None:
    """Left to itself ptxas takes 32 of them, spills the rest, and gets addresses wrong."""
    args = (torch.randn(64, 64, 64).bfloat16(),)
    large = [16 * warps, 16, 16]
    assert f"maxnreg={limit}" in code(peaks, args, block_sizes=large, num_warps=warps)
    half = [8 * warps, 16, 16]
    assert "maxnreg" not in code(peaks, args, block_sizes=half, num_warps=warps)


def test_tiles_of_products_need_no_limit_of_registers() -> None:
    args = (torch.randn(512, 64).half(), torch.randn(64, 256).half())
    assert "maxnreg" not in code(product, args, block_sizes=[256], num_warps=4)


def test_a_limit_of_registers_in_a_config_stays() -> None:
    config = {"block_sizes": [32, 16, 16], "num_warps": 2, "pid_type": "persistent_blocked"}
    args = (torch.randn(64, 64, 64).bfloat16(),)
    assert "maxnreg=64" in code(peaks, args, **config, maxnreg=64)


@helion.kernel(static_shapes=True)
def converted_left(x: torch.Tensor, y: torch.Tensor, scale: float) -> torch.Tensor:
    out = torch.empty([x.size(0), y.size(1)], dtype=y.dtype, device=x.device)
    for tile_m, tile_n in hl.tile([x.size(0), y.size(1)]):
        acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
        for tile_k in hl.tile(x.size(1)):
            acc = torch.addmm(acc, x[tile_m, tile_k].to(y.dtype), y[tile_k, tile_n])
        out[tile_m, tile_n] = acc * scale
    return out


AWAITED = ".to(tl.int32, bitcast=True).to("


@pytest.mark.parametrize(
    ("dtype", "target", "warps", "is_awaited"),
    [
        (torch.int8, "cuda:90", 4, True),
        (torch.float32, "cuda:90", 8, True),
        (torch.bfloat16, "cuda:90", 4, False),
        (torch.int8, "cuda:90", 2, False),
        (torch.int8, "cuda:80", 4, False),
        (torch.int8, "cuda:100", 4, False),
    ],
    ids=["bytes", "words", "loaded", "older", "ampere", "blackwell"],
)
def test_products_that_read_registers_are_waited_for(
    dtype: torch.dtype, target: str, warps: int, is_awaited: bool
) -> None:
    """Triton begins the next turn while they run, which overwrites the registers they read."""
    args = (torch.zeros(128, 128, dtype=dtype), torch.zeros(128, 128).bfloat16(), 2.0)
    config = helion.Config(block_sizes=[64, 64, 64], num_warps=warps, num_stages=3)
    text = converted_left.bind(args, target=target).to_triton_code(config)
    assert (AWAITED in text) == is_awaited


@pytest.mark.full
def test_no_product_of_registers_is_in_flight_at_the_end_of_a_turn() -> None:
    args = (torch.zeros(256, 256), torch.zeros(256, 256).bfloat16(), 2.0)
    bound = converted_left.bind(args, target=TARGET)
    for tile, warps in (([128, 128, 64], 4), ([128, 256, 64], 8)):
        config = helion.Config(block_sizes=tile, num_warps=warps, num_stages=3)
        ptx = compile_artifact(bound.to_artifact(config)).assembly["ptx"]
        assert set(re.findall(r"wgmma.wait_group.sync.aligned\s+(\d+)", ptx)) == {"0"}


@helion.kernel(static_shapes=False)
def between(x: torch.Tensor, bounds: torch.Tensor) -> torch.Tensor:
    out = torch.zeros_like(x)
    for row in hl.grid(x.size(0)):
        for tile in hl.tile(bounds[0], bounds[1]):
            out[row, tile] = x[row, tile]
    return out


@helion.kernel(static_shapes=False)
def copied(x: torch.Tensor) -> torch.Tensor:
    out = torch.zeros_like(x)
    for row in hl.grid(x.size(0)):
        for tile in hl.tile(x.size(1)):
            out[row, tile] = x[row, tile]
    return out


def test_an_unrolled_loop_does_not_end_before_it_begins() -> None:
    """Triton counts its turns without signs: 134 million of ``range(90, 27, 32)``."""
    args = (torch.randn(4, 99), torch.tensor([90, 27]))
    config = {"block_sizes": [32], "range_unroll_factors": [0, 4]}
    pattern = r"tl\.range\(\s*([\w.()]+),\s*tl\.maximum\(\1, "
    assert re.search(pattern, code(between, args, **config))
    plain = {"block_sizes": [32], "range_unroll_factors": [0, 0]}
    assert "maximum(" not in code(between, args, **plain)
    assert "maximum(" not in code(copied, args[:1], **config)


@helion.kernel(static_shapes=True)
def running(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    sums, products = torch.empty_like(x), torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        sums[tile, :] = torch.cumsum(x[tile, :], 1)
        products[tile, :] = hl.associative_scan(lambda a, b: a * b, x[tile, :], dim=1)
    return sums, products


def test_one_element_is_not_scanned() -> None:
    """Triton 3.6 ends its process there by an assertion."""
    args = (torch.randn(32, 1),)
    text = code(running, args)
    assert "tl.cumsum" not in text
    assert "tl.associative_scan" not in text
    assert "tl.cumsum" in code(running, (torch.randn(32, 2),))
    assert torch.equal(running(*args)[1], args[0])
