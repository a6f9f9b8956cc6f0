"""Scans against Python's accumulate and fp64: every type, both directions, partial tiles."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from itertools import accumulate
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.interpreter.run_text import over_tiles, run_text
from tilesmith.dtypes import ALL_DTYPES, DType
from tilesmith.interpreter.torch_dtypes import from_torch, to_torch
from tilesmith.ir.ops.reduction import SCAN_KINDS

KINDS = [kind.value for kind in SCAN_KINDS]
ORDERED = [dtype for dtype in ALL_DTYPES if not dtype.is_bool]
COMBINE: dict[str, Callable[[Any, Any], Any]] = {
    "sum": operator.add,
    "prod": operator.mul,
    "max": max,
    "min": min,
}


def scan(
    x: torch.Tensor, kind: str, *, axis: int = 1, reverse: bool = False, block: int = 3
) -> torch.Tensor:
    """Scan a matrix, tile of rows by tile of rows."""
    rows, columns = x.shape
    out = torch.empty_like(x)
    tile = f"{from_torch(x.dtype)}[m, {columns}]"
    options = f'{{axis={axis}, kind="{kind}", reverse={str(reverse).lower()}}}'
    body = over_tiles(
        f"""
    %rows = expand_dims(%i) {{axes=[1]}} : i64[m, 1]
    %columns = arange() : i64[{columns}]
    %v = load(%x, none, [%rows, %columns]) : {tile}
    %r = scan(%v) {options} : {tile}
    store(%out, %r, none, [%rows, %columns])""",
        rows,
    )
    run_text(body, {"x": x, "out": out}, {"m": block}, reduction_length=max(x.shape))
    return out


def expected_rows(table: list[list[Any]], kind: str, *, reverse: bool) -> list[list[Any]]:
    step = -1 if reverse else 1
    return [list(accumulate(row[::step], COMBINE[kind]))[::step] for row in table]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dtype", ORDERED, ids=str)
@pytest.mark.parametrize("kind", ["max", "min"])
@given(data=st.data())
@settings(max_examples=5)
def test_running_extrema_of_every_type(kind: str, dtype: DType, reverse: bool, data: st.DataObject):
    rows, columns = data.draw(st.sampled_from([(1, 1), (2, 7), (3, 8), (7, 2)]))
    low, high = (-8, 8) if dtype.is_float else (int(dtype.lowest), int(dtype.highest))
    row = st.lists(st.integers(low, high), min_size=columns, max_size=columns)
    table = data.draw(st.lists(row, min_size=rows, max_size=rows))
    x = torch.tensor(table, dtype=None if dtype.is_float else to_torch(dtype)).to(to_torch(dtype))
    assert scan(x, kind, reverse=reverse).tolist() == expected_rows(table, kind, reverse=reverse)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dtype", [dtype for dtype in ORDERED if dtype.is_integer], ids=str)
@pytest.mark.parametrize("kind", ["sum", "prod"])
def test_integers_wrap(kind: str, dtype: DType, reverse: bool):
    table = [[int(dtype.highest), 3, int(dtype.highest), int(dtype.lowest) + 5, 7]]
    x = torch.tensor(table, dtype=to_torch(dtype))
    (found,) = scan(x, kind, reverse=reverse).tolist()
    (exact,) = expected_rows(table, kind, reverse=reverse)
    assert all((a - b) % (1 << dtype.bits) == 0 for a, b in zip(found, exact))
    assert all(dtype.lowest <= value <= dtype.highest for value in found)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("columns", [1, 2, 127, 1000])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_sums_accumulate_in_at_least_fp32(dtype: torch.dtype, columns: int, reverse: bool):
    generator = torch.Generator().manual_seed(3)
    x = torch.rand(5, columns, generator=generator, dtype=torch.float64).to(dtype)
    exact = torch.cumsum(x.double().flip(1) if reverse else x.double(), 1)
    exact = exact.flip(1) if reverse else exact
    unit = torch.finfo(dtype).eps / 2
    accumulated = columns * torch.finfo(torch.promote_types(dtype, torch.float32)).eps
    error = (scan(x, "sum", reverse=reverse).double() - exact).abs()
    assert (error <= (unit + accumulated) * exact).all()


def test_products_of_halves_round_once():
    # 3 * 683 = 2049 is no fp16; rounded to 2048 before the next factor, it would give 6144.
    x = torch.tensor([[3.0, 683.0, 3.0]], dtype=torch.float16)
    assert scan(x, "prod").tolist() == [[3.0, 2048.0, 6148.0]]
    y = torch.tensor([[2.0**12, 2.0**12, 2.0**-12]], dtype=torch.float16)
    assert scan(y, "prod").tolist() == [[4096.0, math.inf, 4096.0]]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_nan_stays_from_where_it_appears(kind: str, reverse: bool):
    x = torch.tensor([[1.0, math.nan, 3.0], [1.0, 2.0, 3.0]])
    found = torch.isnan(scan(x, kind, reverse=reverse)).tolist()
    assert found == [[reverse, True, not reverse], [False, False, False]]


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_axis_stays_empty(kind: str):
    for dtype in (torch.float32, torch.int32, torch.float16, torch.uint32):
        assert scan(torch.empty(2, 0, dtype=dtype), kind).shape == (2, 0)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("rows", [1, 3, 4, 5, 9])
@pytest.mark.parametrize("kind", KINDS)
def test_along_a_partial_tile_lanes_past_its_end_do_not_count(kind: str, rows: int, reverse: bool):
    generator = torch.Generator().manual_seed(rows)
    x = torch.randint(-9, -1, (rows, 3), generator=generator)
    found = scan(x, kind, axis=0, reverse=reverse, block=4)
    for start in range(0, rows, 4):
        columns = x[start : start + 4].T.tolist()
        expected = expected_rows(columns, kind, reverse=reverse)
        assert found[start : start + 4].T.tolist() == expected
