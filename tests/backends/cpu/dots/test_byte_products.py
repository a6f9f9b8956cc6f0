"""Exact products of int8, four steps along k at once: edges of blocks, layouts, extreme values."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.backends.cpu.dots.native_product import Product, compile_product, run_product
from tests.backends.cpu.dots.test_product import LAYOUTS, check
from tests.backends.cpu.native_function import Machine
from tilesmith.dtypes import I8, I32, U8
from tilesmith.runtime.native.host_cpu import host_target
from tilesmith.targets import cpu_target

PRODUCT = Product(Machine("", 16), I8, I32, has_byte_products=True)
INSTRUCTION = "vpdpbusd"
needs_bytes = pytest.mark.skipif(
    not host_target().has_byte_products, reason="this processor has no byte products"
)


def shapes_around_blocks() -> list[tuple[int, int, int]]:
    """Rows and columns around the register blocks, with every remainder along k."""
    sizes = (1, 13, 14, 15, 16, 31, 32, 33, 61)
    depths = itertools.cycle((0, 1, 2, 3, 4, 5, 63, 64, 7, 33))
    pairs = itertools.product(sizes, sizes)
    return [(m, n, k) for (m, n), k in zip(pairs, depths, strict=False)]


@needs_bytes
@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("layouts", LAYOUTS, ids="-".join)
def test_extents_around_blocks(layouts: tuple[str, str], accumulate: bool) -> None:
    product = replace(PRODUCT, layouts=layouts, accumulate=accumulate)
    assert INSTRUCTION in compile_product(product).text
    for shape in shapes_around_blocks():
        check(product, shape)


@needs_bytes
@pytest.mark.parametrize("layouts", LAYOUTS, ids="-".join)
@pytest.mark.parametrize("shape", [(47, 131, 2051), (1153, 33, 1029), (3, 5, 4096)])
def test_several_blocks_along_every_axis(layouts: tuple[str, str], shape) -> None:
    check(replace(PRODUCT, layouts=layouts, shape=shape), shape)


@needs_bytes
@pytest.mark.parametrize(("x", "y"), [(-128, -128), (-128, 127), (127, -128), (127, 127)])
def test_sums_of_extreme_values_are_exact(x: int, y: int) -> None:
    m, n, k = 17, 33, 64
    lhs = torch.full((m, k), x, dtype=torch.int8)
    rhs = torch.full((k, n), y, dtype=torch.int8)
    result = run_product(PRODUCT, (lhs, rhs), torch.zeros((m, n), dtype=torch.int32))
    assert (result == x * y * k).all()


def test_bytes_without_sign_and_other_processors_have_the_old_code() -> None:
    assert INSTRUCTION not in compile_product(replace(PRODUCT, source=U8)).text
    assert INSTRUCTION not in compile_product(replace(PRODUCT, has_byte_products=False)).text
    assert not cpu_target("avx512").has_byte_products
    assert replace(cpu_target("avx512"), features="+avx2,+avx512vnni").has_byte_products
    assert not replace(cpu_target("avx2"), features="+avx2,+avx512vnni").has_byte_products


@helion.kernel
def products(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    (m, k), n = x.size(), y.size(1)
    out = torch.empty([m, n], dtype=torch.int32)
    for tile_m, tile_n in hl.tile([m, n]):
        acc = hl.zeros([tile_m, tile_n], dtype=torch.int32)
        for tile_k in hl.tile(k):
            acc = hl.dot(x[tile_m, tile_k], y[tile_k, tile_n], acc=acc)
        out[tile_m, tile_n] = acc
    return out


@helion.kernel
def products_of_computed(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    m, n = x.size(0), y.size(1)
    out = torch.empty([m, n], dtype=torch.int32)
    for tile_m, tile_n in hl.tile([m, n]):
        lhs = torch.bitwise_xor(x[tile_m, :], -1)
        out[tile_m, tile_n] = hl.dot(lhs, y[:, tile_n], out_dtype=torch.int32)
    return out


@pytest.mark.parametrize("blocks", [None, [16, 16, 2], [8, 32, 24], [64, 64, 64]], ids=str)
@pytest.mark.parametrize("static_shapes", [True, False])
@pytest.mark.parametrize("shape", [(1, 1, 1), (70, 65, 130), (128, 128, 257)], ids=str)
def test_kernels_share_packed_bytes(blocks, static_shapes: bool, shape) -> None:
    m, n, k = shape
    x = torch.randint(-128, 128, (m, k), dtype=torch.int8)
    y = torch.randint(-128, 128, (k, n), dtype=torch.int8)
    config = None if blocks is None else helion.Config(block_sizes=blocks)
    kernel = helion.kernel(products.fn, config=config, static_shapes=static_shapes)
    assert torch.equal(kernel(x, y).long(), x.long() @ y.long())
    transposed = y.T.contiguous().T
    assert torch.equal(kernel(x, transposed).long(), x.long() @ y.long())


@pytest.mark.parametrize("shape", [(1, 1, 1), (33, 17, 65)], ids=str)
def test_operands_that_are_computed(shape) -> None:
    m, n, k = shape
    x = torch.randint(-128, 128, (m, k), dtype=torch.int8)
    y = torch.randint(-128, 128, (k, n), dtype=torch.int8)
    assert torch.equal(products_of_computed(x, y).long(), (~x).long() @ y.long())
