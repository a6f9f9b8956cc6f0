"""Reductions against fp64 and Python, with empty axes, partial tiles and every element type."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.interpreter.run_text import over_tiles, run_text
from tilesmith.dtypes import ALL_DTYPES, DType
from tilesmith.interpreter.torch_dtypes import from_torch, to_torch
from tilesmith.ir.ops.reduction import ReduceKind

ORDERED = [dtype for dtype in ALL_DTYPES if not dtype.is_bool]


def reduce_rows(x: torch.Tensor, kind: str, result: torch.dtype, block: int = 3) -> torch.Tensor:
    """Reduce the last axis of a matrix, tile of rows by tile of rows."""
    rows, columns = x.shape
    out = torch.empty(rows, dtype=result)
    source, target = from_torch(x.dtype), from_torch(result)
    body = over_tiles(
        f"""
    %rows = expand_dims(%i) {{axes=[1]}} : i64[m, 1]
    %columns = arange() : i64[{columns}]
    %v = load(%x, none, [%rows, %columns]) : {source}[m, {columns}]
    %r = reduce(%v) {{axis=1, kind="{kind}"}} : {target}[m]
    store(%out, %r, none, [%i])""",
        rows,
    )
    run_text(body, {"x": x, "out": out}, {"m": block})
    return out


def reduce_all(x: torch.Tensor, kind: str, result: torch.dtype) -> torch.Tensor:
    """Reduce a vector to a scalar in one program."""
    out = torch.empty(1, dtype=result)
    source, target = from_torch(x.dtype), from_torch(result)
    body = f"""
  grid([%zero], [%one]) {{blocks=[""]}} (%pid: i64[]) {{
    %i = arange() : i64[{len(x)}]
    %v = load(%x, none, [%i]) : {source}[{len(x)}]
    %r = reduce(%v) {{axis=0, kind="{kind}"}} : {target}[]
    store(%out, %r, none, [%zero])
  }}"""
    run_text(body, {"x": x, "out": out}, {})
    return out[0]


@pytest.mark.parametrize("dtype", ORDERED, ids=str)
@pytest.mark.parametrize("kind", ["max", "min", "argmax", "argmin"])
@given(data=st.data())
@settings(max_examples=8)
def test_extrema_of_every_type(kind: str, dtype: DType, data: st.DataObject):
    rows, columns = data.draw(st.sampled_from([(1, 1), (2, 7), (3, 8), (4, 5), (7, 2)]))
    low, high = (-8, 8) if dtype.is_float else (int(dtype.lowest), int(dtype.highest))
    numbers = st.integers(low, high) | st.sampled_from([low, high])
    table = data.draw(
        st.lists(
            st.lists(numbers, min_size=columns, max_size=columns), min_size=rows, max_size=rows
        )
    )
    is_arg = kind.startswith("arg")
    choose = max if kind.endswith("max") else min
    expected = [row.index(choose(row)) if is_arg else choose(row) for row in table]
    x = torch.tensor(table, dtype=None if dtype.is_float else to_torch(dtype)).to(to_torch(dtype))
    result = torch.int64 if is_arg else x.dtype
    assert reduce_rows(x, kind, result).tolist() == expected


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("columns", [1, 2, 127, 1000])
def test_sums_accumulate_in_at_least_fp32(dtype: torch.dtype, columns: int):
    generator = torch.Generator().manual_seed(3)
    x = torch.rand(5, columns, generator=generator, dtype=torch.float64).to(dtype)
    expected = x.double().sum(1)
    unit = torch.finfo(dtype).eps / 2
    accumulated = columns * torch.finfo(torch.promote_types(dtype, torch.float32)).eps
    error = (reduce_rows(x, "sum", dtype).double() - expected).abs()
    assert (error <= (unit + accumulated) * expected).all()


def test_half_sum_into_float32_is_not_rounded_to_half():
    x = torch.full((1, 4097), 1.0, dtype=torch.float16)
    assert reduce_rows(x, "sum", torch.float32).tolist() == [4097.0]


@pytest.mark.parametrize("dtype", [dtype for dtype in ALL_DTYPES if dtype.is_integer], ids=str)
def test_integer_sums_and_products_wrap(dtype: DType):
    values = [int(dtype.highest), int(dtype.highest), 3, int(dtype.lowest)]
    x = torch.tensor([values], dtype=to_torch(dtype))
    for kind, exact in (("sum", sum(values)), ("prod", math.prod(values))):
        out = reduce_rows(x, kind, x.dtype).item()
        assert (out - exact) % (1 << dtype.bits) == 0
        assert dtype.lowest <= out <= dtype.highest


def test_sum_of_booleans_counts():
    x = torch.tensor([[True, False, True], [False, False, False]])
    assert reduce_rows(x, "sum", torch.int64).tolist() == [2, 0]


@pytest.mark.parametrize("kind", ["max", "min"])
def test_extrema_propagate_nan(kind: str):
    x = torch.tensor([[1.0, math.nan, 3.0], [1.0, 2.0, 3.0]])
    assert torch.isnan(reduce_rows(x, kind, torch.float32)).tolist() == [True, False]


@pytest.mark.parametrize("kind", ["argmax", "argmin"])
def test_arg_forms_give_the_first_of_equals(kind: str):
    x = torch.tensor([[5, 5, 5, 5], [1, 2, 2, 1], [2, 1, 1, 2]]).float()
    expected = [0, 1, 0] if kind == "argmax" else [0, 0, 1]
    assert reduce_rows(x, kind, torch.int32).tolist() == expected
    assert reduce_rows(x.bool(), kind, torch.int32).tolist() == [0, 0, 0]


@pytest.mark.parametrize("dtype", [torch.bool, torch.float32, torch.int32])
def test_any_and_all(dtype: torch.dtype):
    x = torch.tensor([[0, 0], [0, 1], [1, 1], [1, 0]]).to(dtype)
    assert reduce_rows(x, "any", torch.bool).tolist() == [False, True, True, True]
    assert reduce_rows(x, "all", torch.bool).tolist() == [False, False, True, False]


@pytest.mark.parametrize("kind", [kind for kind in ReduceKind if not kind.is_arg])
def test_an_empty_axis_gives_the_identity(kind: ReduceKind):
    is_bool = kind in (ReduceKind.ANY, ReduceKind.ALL)
    dtypes = [torch.bool] if is_bool else [torch.float32, torch.int32, torch.float16, torch.uint32]
    for dtype in dtypes:
        x = torch.empty(2, 0, dtype=dtype)
        expected = kind.identity(from_torch(dtype))
        assert reduce_rows(x, kind.value, dtype).tolist() == [expected, expected]
        assert reduce_all(x[0], kind.value, dtype).item() == expected


@pytest.mark.parametrize("length", [1, 5, 8])
def test_reduction_to_a_scalar(length: int):
    x = torch.arange(1, length + 1)
    assert reduce_all(x, "sum", torch.int64) == length * (length + 1) // 2
    assert reduce_all(x.float(), "max", torch.float32) == length
    assert reduce_all(x, "argmax", torch.int32) == length - 1


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("rows", [1, 3, 4, 5, 9])
def test_every_axis_of_a_partial_tile(axis: int, rows: int):
    generator = torch.Generator().manual_seed(rows)
    x = torch.randint(-9, 9, (rows, 2, 3), generator=generator)
    shape = ["m", "2", "3"]
    kept = ", ".join(shape[:axis] + shape[axis + 1 :])
    body = over_tiles(
        f"""
    %rows = expand_dims(%i) {{axes=[1, 2]}} : i64[m, 1, 1]
    %a2 = arange() : i64[2]
    %middle = expand_dims(%a2) {{axes=[1]}} : i64[2, 1]
    %columns = arange() : i64[3]
    %v = load(%x, none, [%rows, %middle, %columns]) : i64[m, 2, 3]
    %masked = mask(%v) {{fill=0, axes=[0]}} : i64[m, 2, 3]
    %r = reduce(%masked) {{axis={axis}, kind="sum"}} : i64[{kept}]
    %r1 = reduce(%r) {{axis=1, kind="max"}} : i64[{kept.split(",")[0]}]
    %r2 = reduce(%r1) {{axis=0, kind="min"}} : i64[]
    %old = atomic(%out, %r2, none, [%zero]) {{kind="add"}} : i64[]""",
        rows,
    )
    out = torch.zeros(1, dtype=torch.int64)
    run_text(body, {"x": x, "out": out}, {"m": 4})
    tiles = [x[start : start + 4] for start in range(0, rows, 4)]
    assert out.item() == sum(int(tile.sum(axis).amax(1).amin()) for tile in tiles)
