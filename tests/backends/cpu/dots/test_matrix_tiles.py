"""Products of bf16 in tile registers against fp64: edges of tiles, layouts, denormal numbers."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
import torch

from tests.backends.cpu.dots.native_product import Product, compile_product, run_product
from tests.backends.cpu.dots.test_product import LAYOUTS, check, operands
from tests.backends.cpu.native_function import Machine
from tilesmith.dtypes import BF16, F16, F32
from tilesmith.runtime.native.host_cpu import host_target

HOST = Machine("", 16)
PRODUCT = Product(HOST, BF16, F32, has_matrix_tiles=True)
SMALLEST_NORMAL = 2.0**-126
needs_tiles = pytest.mark.skipif(
    not host_target().has_matrix_tiles, reason="this process may not use AMX"
)


def shapes_around_tiles() -> list[tuple[int, int, int]]:
    """Rows and columns around one tile and two, with every kind of remainder along k."""
    sizes = (1, 15, 16, 17, 31, 32, 33, 61)
    depths = itertools.cycle((0, 1, 31, 32, 33, 2, 64, 63, 7))
    pairs = itertools.product(sizes, sizes)
    return [(m, n, k) for (m, n), k in zip(pairs, depths, strict=False)]


@needs_tiles
@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("layouts", LAYOUTS, ids="-".join)
def test_extents_around_tiles(layouts: tuple[str, str], accumulate: bool) -> None:
    product = replace(PRODUCT, layouts=layouts, accumulate=accumulate)
    assert "tdpbf16ps" in compile_product(product).text
    for shape in shapes_around_tiles():
        check(product, shape)


@needs_tiles
@pytest.mark.parametrize("rows", [1, 16, 17, 32, 33, 96])
@pytest.mark.parametrize("depth", [0, 32, 33, 96, 544])
def test_tiles_are_read_in_place_where_whole(rows: int, depth: int) -> None:
    shape = (rows, 40, depth)
    product = replace(PRODUCT, layouts=("near", "near"), shape=shape, is_fixed=True)
    reads = "dot_i16_float" in compile_product(product).text
    assert reads == (depth % 32 == 0)
    check(product, shape)


@needs_tiles
@pytest.mark.parametrize("layouts", LAYOUTS, ids="-".join)
def test_several_blocks_along_every_axis(layouts: tuple[str, str]) -> None:
    shape = (1153, 131, 1029)
    check(replace(PRODUCT, layouts=layouts, shape=shape), shape)


@needs_tiles
@pytest.mark.parametrize(
    "shape", [(1, 1, 1), (16, 16, 32), (16, 17, 40), (17, 16, 40), (200, 1, 9)]
)
@pytest.mark.parametrize("is_fixed", [False, True])
def test_small_results_have_blocks_of_their_own(
    shape: tuple[int, int, int], is_fixed: bool
) -> None:
    check(replace(PRODUCT, shape=shape, is_fixed=is_fixed), shape)


@needs_tiles
@pytest.mark.parametrize("accumulate", [False, True])
def test_accumulation_decided_at_run_time(accumulate: bool) -> None:
    check(replace(PRODUCT, accumulate=accumulate, decides_late=True), (31, 29, 17))


@needs_tiles
@pytest.mark.parametrize("layouts", LAYOUTS[:4], ids="-".join)
def test_infinities_and_nans_stay_in_their_rows_and_columns(layouts: tuple[str, str]) -> None:
    lhs, rhs = operands((61, 61, 33), BF16)
    lhs[7, 3], lhs[9, 4], rhs[5, 60] = math.nan, math.inf, math.nan
    result = run_product(replace(PRODUCT, layouts=layouts), (lhs, rhs), torch.zeros(61, 61))
    exact = lhs.double() @ rhs.double()
    assert torch.equal(result.isnan(), exact.isnan())
    assert torch.equal(result.isinf(), exact.isinf())


@needs_tiles
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


@needs_tiles
def test_products_of_the_smallest_normal_numbers_are_kept() -> None:
    lhs = torch.full((16, 32), SMALLEST_NORMAL, dtype=torch.bfloat16)
    result = run_product(PRODUCT, (lhs, torch.ones(32, 16).bfloat16()), torch.zeros(16, 16))
    assert torch.equal(result, torch.full((16, 16), 32 * SMALLEST_NORMAL))


@pytest.mark.parametrize(
    "product",
    [
        replace(PRODUCT, has_matrix_tiles=False),
        replace(PRODUCT, source=F16),
        replace(PRODUCT, machine=Machine("haswell", 8)),
    ],
    ids=["without tiles", "other types", "narrow vectors"],
)
def test_other_products_are_vectors(product: Product) -> None:
    if product.machine == HOST and host_target().arch != "avx512":
        pytest.skip("this CPU has no AVX-512")
    assert "tdpbf16ps" not in compile_product(product).text
    check(product, (17, 33, 31))
