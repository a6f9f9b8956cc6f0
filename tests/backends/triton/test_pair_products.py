"""Products of numbers in pairs as two products: interpreted by Triton, and for GPUs."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tilesmith
import tilesmith.language as hl
from examples.int4_gemm import int4_gemm, pack, unpack
from examples.nvfp4_gemm import nvfp4_gemm
from examples.ports import nf4_matmul as nf4
from tests.backends.triton.test_summed_parts import SHAPES, bind, found_by, random
from tests.interpreted import run_function
from tests.native_text import run_native
from tilesmith.backends.triton.build import compile_artifact
from tilesmith.ir.ops.elementwise import Cast
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.rearrangement import Join
from tilesmith.ir.traversal import walk
from tilesmith.numerics.compare import check_against
from tilesmith.schedule.config import Config

FORMS = (PRODUCTS, PARTS) = ("pair_products", "pair_parts")
ALL_BYTES = torch.arange(256).to(torch.uint8)


def ops_of(bound: Any, form: str, kind: type) -> list[Any]:
    function = bound.config_spec.forms()[form].kernel.outline.function
    return [op for op in walk(function.body) if isinstance(op, kind)]


def check(
    run: Any, kernel: Any, given: dict[str, Any], exact: torch.Tensor, config: Config
) -> None:
    bound = bind(kernel, *given.values())
    out = torch.full(exact.shape, float("nan")).to(given["x"].dtype)
    found = found_by(run, bound.to_artifact(config), {**given, "out": out})
    torch.testing.assert_close(found.double(), exact, rtol=2e-3, atol=4e-3)


@pytest.mark.parametrize("shape", SHAPES[1:2], ids=str)
@pytest.mark.parametrize("form", FORMS)
def test_packed_weights(run: Any, form: str, shape: tuple[int, int, int]) -> None:
    m, k, n = shape
    weights = torch.randint(-8, 8, [k, n], generator=torch.Generator().manual_seed(1))
    x, packed = random(m, k), pack(weights)
    blocks = [16, 16, 32] if form == PRODUCTS else [16, 16, 32, 128]
    exact = x.double() @ unpack(packed).double()
    check(
        run,
        int4_gemm,
        {"x": x, "packed": packed},
        exact,
        Config(structure=form, block_sizes=blocks),
    )


@tilesmith.kernel(static_shapes=True)
def unsigned_halves(x: torch.Tensor, packed: torch.Tensor, zeros: torch.Tensor) -> torch.Tensor:
    """Weights from 0 to 15 less a zero for each column, on the left of the product."""
    half_k, m = packed.size()
    out = torch.empty([m, x.size(1)], dtype=x.dtype, device=x.device)
    for tile_m, tile_n in hl.tile([m, x.size(1)]):
        acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
        for tile_k in hl.tile(half_k):
            both = packed[tile_k, tile_m]
            pairs = torch.stack([both & 15, both >> 4], dim=1).to(x.dtype)
            rows = pairs.reshape(tile_k.block_size * 2, tile_m.block_size)
            rows = rows - zeros[tile_m][None, :]
            begin = tile_k.begin * 2
            acc = hl.dot(rows.T, x[begin : begin + tile_k.block_size * 2, tile_n], acc=acc)
        out[tile_m, tile_n] = acc.to(x.dtype)
    return out


def run_both(kernel: Any, given: dict[str, Any], shape: tuple[int, int]) -> list[torch.Tensor]:
    """What two products mean, and what native code makes of them."""
    bound = bind(kernel, *given.values())
    function = bound.config_spec.forms()[PRODUCTS].kernel.outline.function
    out = torch.full(shape, float("nan")).to(given["x"].dtype)
    values, native = {**given, "out": out}, {**given, "out": out.clone()}
    sizes = {block.name: 16 for block in function.blocks}
    run_function(function, values, sizes)
    run_native(function, native, sizes)
    return [values["out"], native["out"]]


DTYPES = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])


@DTYPES
@pytest.mark.parametrize("k", [64, 70])
def test_weights_on_the_left(dtype: torch.dtype, k: int) -> None:
    packed = ALL_BYTES.repeat(5)[: k // 2 * 20].view(k // 2, 20)
    zeros = torch.arange(20).to(dtype)
    # Each column of the result is a row of weights: nothing is rounded.
    given = {"x": torch.eye(k).to(dtype), "packed": packed, "zeros": zeros}
    halves = torch.stack([packed & 15, packed >> 4], 1).reshape(k, 20)
    for found in run_both(unsigned_halves, given, (20, k)):
        assert torch.equal(found.double(), (halves.double() - zeros.double()).T)
    bound = bind(unsigned_halves, *given.values())
    assert len(ops_of(bound, PRODUCTS, Dot)) == 2
    assert not ops_of(bound, PRODUCTS, Join)


@DTYPES
def test_every_byte_becomes_two_exact_numbers(dtype: torch.dtype) -> None:
    packed = ALL_BYTES.view(torch.int8).view(32, 8)
    given = {"x": torch.eye(64).to(dtype), "packed": packed}
    assert any(op.bitcast for op in ops_of(bind(int4_gemm, *given.values()), PRODUCTS, Cast))
    for found in run_both(int4_gemm, given, (64, 8)):
        assert torch.equal(found.double(), unpack(packed).double())


def test_looked_up_weights() -> None:
    kernel = tilesmith.kernel(nf4.nf4_matmul.fn, static_shapes=True)
    torch.manual_seed(0)
    x, weights = random(17, 192), torch.randn(33, 192)
    packed, scales = nf4.quantise(weights)
    codes = torch.tensor(nf4.CODES)
    exact = nf4.reference(x, packed, scales, codes).double()
    given = {"x": x, "packed": packed, "scales": scales, "codes": codes}
    assert len(ops_of(bind(kernel, *given.values()), PRODUCTS, Dot)) == 2
    for found in run_both(kernel, given, (17, 33)):
        check_against(found, exact, reduction_length=192, intermediate=[torch.float16])


def test_both_operands_may_come_in_pairs() -> None:
    bytes_, scales = torch.empty(64, 256, dtype=torch.uint8), torch.empty(64, 32)
    scales = scales.to(torch.float8_e4m3fn)
    bound = bind(nvfp4_gemm, bytes_, bytes_.clone(), scales, scales.clone(), 1.0, 1.0)
    assert len(ops_of(bound, PRODUCTS, Dot)) == 2
    assert not ops_of(bound, PRODUCTS, Join)


@tilesmith.kernel(static_shapes=True)
def joined_columns(x: torch.Tensor, packed: torch.Tensor) -> torch.Tensor:
    """Pairs are columns of the result: nothing is summed over them."""
    k, half_n = packed.size()
    out = torch.empty([x.size(0), half_n, 2], dtype=x.dtype, device=x.device)
    for tile_m, tile_n in hl.tile([x.size(0), half_n]):
        acc = hl.zeros([tile_m, tile_n.block_size * 2], dtype=torch.float32)
        for tile_k in hl.tile(k):
            both = packed[tile_k, tile_n]
            pairs = torch.stack([both & 15, both >> 4], dim=-1).to(x.dtype)
            columns = pairs.reshape(tile_k.block_size, tile_n.block_size * 2)
            acc = hl.dot(x[tile_m, tile_k], columns, acc=acc)
        out[tile_m, tile_n, :] = acc.reshape(tile_m.block_size, tile_n.block_size, 2).to(x.dtype)
    return out


def test_pairs_that_are_not_summed_have_no_such_form() -> None:
    x, packed = random(64, 64), torch.zeros(64, 32, dtype=torch.uint8)
    assert PRODUCTS not in bind(joined_columns, x, packed).config_spec.forms()


def empty_int4(m: int, k: int, n: int) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.empty(m, k, dtype=torch.bfloat16, device="meta")
    return x, torch.empty(k // 2, n, dtype=torch.int8, device="meta")


@pytest.mark.parametrize(
    ("shape", "form", "blocks"),
    [
        ((64, 8192, 1280), PARTS, [64, 32, 64, 512]),
        # Rows of 64 bytes, where columns are many.
        ((1, 8192, 8192), PARTS, [16, 64, 64, 1024]),
        ((16, 4096, 4096), PARTS, [16, 64, 64, 256]),
        # A short sum.
        ((16, 1024, 8192), PRODUCTS, [16, 32, 128]),
        # Many rows convert the weights once.
        ((1024, 3584, 8192), "converted_ahead", [128, 256, 64]),
    ],
)
def test_they_are_defaults_for_few_rows(shape: Any, form: str, blocks: list[int]) -> None:
    chosen = bind(int4_gemm, *empty_int4(*shape)).config_spec.default_config()
    assert (chosen["structure"], chosen["block_sizes"]) == (form, blocks)


def test_tiles_are_wide_where_both_sides_are_converted() -> None:
    x, w = (torch.empty(n, 2048, dtype=torch.uint8, device="meta") for n in (64, 4096))
    scales = [torch.empty(n, 256, device="meta").to(torch.float8_e4m3fn) for n in (64, 4096)]
    spec = bind(nvfp4_gemm, x, w, *scales, 1.0, 1.0).config_spec
    chosen = spec.default_config()
    assert (chosen["structure"], chosen["block_sizes"]) == (PARTS, [64, 64, 8, 64])
    assert spec.forms()[PRODUCTS].default_config()["block_sizes"] == [64, 32, 8]


@pytest.mark.parametrize("form", FORMS)
def test_tiles_are_those_of_one_product(form: str) -> None:
    bound = bind(int4_gemm, *empty_int4(64, 8192, 1280))
    forms = bound.config_spec.forms()
    chosen = forms[form].default_config()
    if form == PARTS:
        assert chosen["block_sizes"] == forms["sum_parts"].default_config()["block_sizes"]
    assert compile_artifact(bound.to_artifact(chosen.updated(structure=form))).binary
