"""Products of tiles against fp64: shapes around the register blocks, layouts, types, processors."""

from __future__ import annotations

import itertools
import math

import llvmlite.binding as llvm
import pytest
import torch

from tests.backends.cpu.dots.native_product import Product, compile_product, run_product
from tests.backends.cpu.native_function import Machine
from tilesmith.backends.cpu.dots.shapes import register_block
from tilesmith.dtypes import BF16, F8E4M3, F8E5M2, F16, F32, F64, I8, I32, U8, DType

HAS_AVX512 = bool(llvm.get_host_cpu_features().get("avx512bw"))
MACHINES = [
    pytest.param(
        Machine("", 16), id="avx512", marks=pytest.mark.skipif(not HAS_AVX512, reason="AVX-512")
    ),
    pytest.param(Machine("haswell", 8), id="avx2"),
    pytest.param(Machine("nehalem", 8), id="sse"),
]
TORCH = {
    F64: torch.float64, F32: torch.float32, F16: torch.float16, BF16: torch.bfloat16,
    F8E4M3: torch.float8_e4m3fn, F8E5M2: torch.float8_e5m2,
    I32: torch.int32, I8: torch.int8, U8: torch.uint8,
}  # fmt: skip


def operands(shape: tuple[int, int, int], source: DType) -> tuple[torch.Tensor, torch.Tensor]:
    m, n, k = shape
    made = torch.Generator().manual_seed(m * 10007 + n * 101 + k)
    sizes = (m, k), (k, n)
    if source.is_float:
        lhs, rhs = (torch.randn(size, generator=made, dtype=torch.float64) for size in sizes)
    else:
        low, high = int(source.lowest), int(source.highest) + 1
        lhs, rhs = (torch.randint(low, high, size, generator=made) for size in sizes)
    return lhs.to(TORCH[source]), rhs.to(TORCH[source])


def check(product: Product, shape: tuple[int, int, int]) -> None:
    lhs, rhs = operands(shape, product.source)
    dtype = TORCH[product.dtype]
    start = torch.linspace(-3, 3, shape[0] * shape[1]).view(shape[:2]).to(dtype)
    result = run_product(product, (lhs, rhs), start)
    before = start.double() if product.accumulate else torch.zeros(shape[:2]).double()
    if not product.dtype.is_float:
        assert torch.equal(result, (lhs.long() @ rhs.long() + before.long()).to(dtype))
        return
    exact = lhs.double() @ rhs.double() + before
    # One rounding per product and per addition, in whatever order; fp64 rounds its own reference.
    steps = shape[2] + 2
    unit = 2.0**-product.dtype.precision * (2 if product.dtype == F64 else 1)
    size = lhs.double().abs() @ rhs.double().abs() + before.abs()
    bound = size * (steps * unit / (1 - steps * unit))
    assert not torch.isnan(result).any()
    assert ((result.double() - exact).abs() <= bound).all()


def shapes_around(machine: Machine, dtype: DType) -> list[tuple[int, int, int]]:
    """Extents around the blocks that bounds of 64 lead to, and every remainder along k."""
    block = register_block(machine.lanes, dtype, (64, 64))
    rows = (1, block.rows - 1, block.rows, block.rows + 1, 61)
    columns = (1, block.columns - 1, block.columns, block.columns + 1, 61)
    depths = itertools.cycle((0, 1, 15, 16, 17, 31, 2, 64, 7))
    pairs = itertools.product(rows, columns)
    return [(max(m, 1), min(n, 64), k) for (m, n), k in zip(pairs, depths, strict=False)]


LAYOUTS = [
    ("rows", "rows"), ("rows", "columns"), ("columns", "rows"), ("columns", "columns"),
    ("near", "near"), ("any", "any"), ("apart", "apart"),
]  # fmt: skip


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("layouts", LAYOUTS, ids="-".join)
def test_extents_around_the_register_block(machine: Machine, layouts: tuple[str, str]) -> None:
    product = Product(machine, F32, F32, layouts)
    for shape in shapes_around(machine, F32):
        check(product, shape)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("source", [F64, F16, BF16, F8E4M3, F8E5M2, I8, U8, I32], ids=str)
@pytest.mark.parametrize("layouts", [("rows", "rows"), ("columns", "columns")], ids="-".join)
def test_types(machine: Machine, source: DType, layouts: tuple[str, str]) -> None:
    if machine.cpu == "nehalem" and source in (F16, F8E4M3, F8E5M2):
        pytest.skip("converting halves calls a library function there")
    dtype = F64 if source == F64 else F32 if source.is_float else I32
    product = Product(machine, source, dtype, layouts, accumulate=True)
    for shape in shapes_around(machine, dtype)[::3]:
        check(product, shape)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("layouts", LAYOUTS[1:3], ids="-".join)
def test_several_blocks_along_every_axis(machine: Machine, layouts: tuple[str, str]) -> None:
    shape = (1153, 131, 521)
    for accumulate in (False, True):
        check(Product(machine, F32, F32, layouts, shape, accumulate=accumulate), shape)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 200, 64), (200, 1, 9), (3, 16, 5), (17, 33, 65)])
def test_small_results_have_blocks_of_their_own(
    machine: Machine, shape: tuple[int, int, int]
) -> None:
    for is_fixed in (False, True):
        check(Product(machine, F32, F32, ("near", "near"), shape, is_fixed), shape)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("layouts", [("near", "near"), ("near", "columns")], ids="-".join)
def test_constant_extents_of_whole_blocks(machine: Machine, layouts: tuple[str, str]) -> None:
    shape = (128, 64, 37)
    check(Product(machine, F32, F32, layouts, shape, is_fixed=True), shape)


@pytest.mark.parametrize("machine", MACHINES)
def test_empty_contraction_gives_zeros_or_keeps_the_sum(machine: Machine) -> None:
    for accumulate in (False, True):
        check(Product(machine, F32, F32, accumulate=accumulate), (5, 7, 0))


def test_accumulation_decided_at_run_time() -> None:
    for accumulate in (False, True):
        machine = Machine("haswell", 8)
        check(Product(machine, F32, F32, accumulate=accumulate, decides_late=True), (31, 29, 17))


@pytest.mark.parametrize("machine", MACHINES)
def test_infinities_and_nans_stay_in_their_rows_and_columns(machine: Machine) -> None:
    lhs, rhs = operands((61, 61, 33), F32)
    lhs[7, 3], lhs[9, 4], rhs[5, 60] = math.nan, math.inf, math.nan
    product = Product(machine, F32, F32)
    result = run_product(product, (lhs, rhs), torch.zeros(61, 61))
    assert torch.equal(result.isnan(), (lhs @ rhs).isnan())
    assert torch.equal(result.isinf(), (lhs @ rhs).isinf())


def test_products_of_one_kind_share_their_code() -> None:
    text = compile_product(Product(Machine("haswell", 8), F32, F32)).text
    names = [line.split("@")[1].split("(")[0] for line in text.splitlines() if "define" in line]
    assert len(names) == len(set(names))
    assert sum(name.startswith("dot_") for name in names) <= 2
