"""Products of bf16, two steps along k at once, against fp64: edges, layouts, denormal numbers."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.backends.cpu.dots.native_product import Product, compile_product, run_product
from tests.backends.cpu.dots.test_product import LAYOUTS, check, operands
from tests.backends.cpu.native_function import Machine
from tests.conformance.case import randn
from tilesmith.backends.cpu.dots.joined_steps import most_steps
from tilesmith.dtypes import BF16, F16, F32
from tilesmith.numerics.compare import check_against
from tilesmith.runtime.native.host_cpu import host_target
from tilesmith.targets import cpu_target

HALF = torch.bfloat16
PRODUCT = Product(Machine("", 16), BF16, F32, has_pair_products=True)
INSTRUCTION = "dpbf16ps"
SMALLEST_NORMAL = 2.0**-126
needs_pairs = pytest.mark.skipif(
    not host_target().has_pair_products, reason="this processor has no products of pairs"
)
in_lanes = pytest.mark.skipif(
    not host_target().has_pair_products or host_target().has_matrix_tiles,
    reason="kernels have no products of pairs in lanes here",
)


def shapes_around_blocks() -> list[tuple[int, int, int]]:
    """Rows and columns around the register blocks, with every remainder along k."""
    sizes = (1, 13, 14, 15, 16, 31, 32, 33, 61)
    depths = itertools.cycle((0, 1, 2, 3, 31, 32, 33, 63, 64, 7))
    pairs = itertools.product(sizes, sizes)
    return [(m, n, k) for (m, n), k in zip(pairs, depths, strict=False)]


@needs_pairs
@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("layouts", LAYOUTS, ids="-".join)
def test_extents_around_blocks(layouts: tuple[str, str], accumulate: bool) -> None:
    product = replace(PRODUCT, layouts=layouts, accumulate=accumulate)
    assert INSTRUCTION in compile_product(product).text
    for shape in shapes_around_blocks():
        check(product, shape)


@needs_pairs
@pytest.mark.parametrize("layouts", LAYOUTS, ids="-".join)
@pytest.mark.parametrize("shape", [(47, 131, 1051), (1153, 33, 517), (3, 5, 4096)])
def test_several_blocks_along_every_axis(layouts: tuple[str, str], shape) -> None:
    check(replace(PRODUCT, layouts=layouts, shape=shape), shape)


@needs_pairs
@pytest.mark.parametrize("shape", [(1, 1, 1), (14, 32, 2), (16, 17, 40), (17, 16, 39), (200, 1, 9)])
@pytest.mark.parametrize("is_fixed", [False, True])
def test_small_results_have_blocks_of_their_own(shape, is_fixed: bool) -> None:
    check(replace(PRODUCT, shape=shape, is_fixed=is_fixed), shape)


@needs_pairs
@pytest.mark.parametrize("layouts", LAYOUTS[:4], ids="-".join)
def test_infinities_and_nans_stay_in_their_rows_and_columns(layouts: tuple[str, str]) -> None:
    lhs, rhs = operands((61, 61, 33), BF16)
    lhs[7, 3], lhs[9, 4], rhs[5, 60] = math.nan, math.inf, math.nan
    result = run_product(replace(PRODUCT, layouts=layouts), (lhs, rhs), torch.zeros(61, 61))
    exact = lhs.double() @ rhs.double()
    assert torch.equal(result.isnan(), exact.isnan())
    assert torch.equal(result.isinf(), exact.isinf())


@needs_pairs
def test_only_denormal_operands_count_as_zero() -> None:
    lhs, rhs = operands((33, 17, 40), BF16)
    rhs *= 2.0**100
    lhs[3], rhs[:, 2] = SMALLEST_NORMAL / 2, -SMALLEST_NORMAL / 128
    lhs[4, 7], lhs[5] = SMALLEST_NORMAL / 4, SMALLEST_NORMAL
    result = run_product(PRODUCT, (lhs, rhs), torch.zeros(33, 17)).double()
    assert not result[3].any()
    assert not result[:, 2].any()
    left, right = (x.double() * (x.double().abs() >= SMALLEST_NORMAL) for x in (lhs, rhs))
    bound = (left.abs() @ right.abs()) * (42 * 2.0**-24) * 1.001
    assert (result - left @ right).abs().le(bound).all()
    assert result[5, 3:].abs().gt(0).all()


@needs_pairs
def test_products_of_the_smallest_normal_numbers_are_kept() -> None:
    lhs = torch.full((16, 32), SMALLEST_NORMAL, dtype=HALF)
    result = run_product(PRODUCT, (lhs, torch.ones(32, 16).bfloat16()), torch.zeros(16, 16))
    assert torch.equal(result, torch.full((16, 16), 32 * SMALLEST_NORMAL))


def test_other_types_and_processors_have_the_old_code() -> None:
    assert INSTRUCTION not in compile_product(replace(PRODUCT, source=F16)).text
    assert INSTRUCTION not in compile_product(replace(PRODUCT, has_pair_products=False)).text
    assert not cpu_target("avx512").has_pair_products
    assert replace(cpu_target("avx512"), features="+avx2,+avx512bf16").has_pair_products
    assert not replace(cpu_target("avx2"), features="+avx2,+avx512bf16").has_pair_products


def test_tile_registers_come_before_pairs() -> None:
    pairs = replace(cpu_target("avx512"), features="+avx512bf16")
    tiles = replace(pairs, features="+avx512bf16,+amx-bf16")
    assert most_steps(BF16, BF16, pairs) == 2
    assert most_steps(BF16, BF16, tiles) == most_steps(F16, F16, pairs) == 1


@helion.kernel
def products(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    (m, k), n = x.size(), y.size(1)
    out = torch.empty([m, n], dtype=torch.float32)
    for tile_m, tile_n in hl.tile([m, n]):
        acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
        for tile_k in hl.tile(k):
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, tile_n])
        out[tile_m, tile_n] = acc
    return out


@pytest.mark.parametrize("blocks", [None, [16, 16, 1], [8, 32, 24], [64, 64, 64]], ids=str)
@pytest.mark.parametrize("static_shapes", [True, False])
@pytest.mark.parametrize("shape", [(1, 1, 1), (70, 65, 131), (128, 128, 257)], ids=str)
def test_kernels_share_packed_pairs(blocks, static_shapes: bool, shape) -> None:
    m, n, k = shape
    x, y = randn(m, k, dtype=HALF), randn(k, n, dtype=HALF)
    config = None if blocks is None else helion.Config(block_sizes=blocks)
    kernel = helion.kernel(products.fn, config=config, static_shapes=static_shapes)
    for right in (y, y.T.contiguous().T):
        check_against(kernel(x, right), x.double() @ y.double(), reduction_length=k)


@helion.kernel
def squares(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    m, columns = x.size(0), hl.specialize(z.size(1))
    out = torch.empty([m, columns], dtype=torch.float32)
    for t in hl.tile(m):
        part = hl.dot(x[t, :], y[:, :])
        out[t, :] = hl.dot((part * part).to(HALF), z[:, :])
    return out


@pytest.mark.parametrize("m", [1, 14, 33, 200])
@pytest.mark.parametrize("block", [16, 64])
def test_operands_that_are_computed(m: int, block: int) -> None:
    x, y, z = randn(m, 40, dtype=HALF), randn(40, 24, dtype=HALF), randn(24, 600, dtype=HALF)
    kernel = helion.kernel(squares.fn, config=helion.Config(block_sizes=[block]))
    exact = (x.double() @ y.double()).square() @ z.double()
    check_against(kernel(x, y, z), exact, reduction_length=40 * 24, intermediate=HALF)


@helion.kernel
def rounded_chain(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    m, columns = x.size(0), hl.specialize(z.size(1))
    out = torch.empty([m, columns], dtype=torch.float32)
    for t in hl.tile(m):
        part = hl.dot(x[t, :], y[:, :], out_dtype=HALF)
        out[t, :] = hl.dot(part, z[:, :])
    return out


@pytest.mark.parametrize("m", [1, 33, 200])
def test_a_rounded_product_is_an_operand_of_the_next(m: int) -> None:
    x, y, z = randn(m, 40, dtype=HALF), randn(40, 24, dtype=HALF), randn(24, 600, dtype=HALF)
    kernel = helion.kernel(rounded_chain.fn, config=helion.Config(block_sizes=[16]))
    exact = (x.double() @ y.double()) @ z.double()
    check_against(kernel(x, y, z), exact, reduction_length=40 * 24, intermediate=HALF)


@in_lanes
def test_kernels_multiply_pairs() -> None:
    x, y = randn(300, 40, dtype=HALF), randn(40, 600, dtype=HALF)
    bound = products.bind((x, y))
    assert INSTRUCTION in bound.to_code(form="llvm")
    assert "y is packed once for all programs" in bound.to_code()
