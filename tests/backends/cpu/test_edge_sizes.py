"""Rows and columns of every awkward length and content: native code, the interpreter and fp64.

Lengths around the width of a vector and of an unrolled loop, primes, 0 and 1; rows of NaN,
infinities, subnormals and zeros of both signs; every element type.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch.nn import functional

import tilesmith as helion
import tilesmith.language as hl
from tests.conformance.case import randn
from tests.host_backends import lanes, on_backend
from tilesmith.numerics.compare import check_against
from tilesmith.numerics.inputs import random_tensor

W = lanes()
LENGTHS = (1, W - 1, W, W + 1, 4 * W - 1, 4 * W, 4 * W + 1, 7, 53, 131)
SHORT_LENGTHS = (1, W - 1, W, W + 1, 4 * W + 1, 53)


@dataclass(frozen=True)
class RowFunction:
    """A function of rows. ``is_exact``: every order of evaluation gives the same bits."""

    fn: Callable[[Any, int], Any]
    is_exact: bool
    of_floats_only: bool = False


FUNCTIONS = {
    "sum": RowFunction(lambda x, axis: x.sum(axis), False),
    "prod": RowFunction(lambda x, axis: x.prod(axis), False),
    "mean": RowFunction(lambda x, axis: x.mean(axis), False, True),
    "amax": RowFunction(lambda x, axis: x.amax(axis), True),
    "amin": RowFunction(lambda x, axis: x.amin(axis), True),
    "argmax": RowFunction(torch.argmax, True),
    "argmin": RowFunction(torch.argmin, True),
    "any": RowFunction(lambda x, axis: torch.any(x != 0, axis), True),
    "all": RowFunction(lambda x, axis: torch.all(x != 0, axis), True),
    "cumsum": RowFunction(torch.cumsum, False),
    "cummin": RowFunction(lambda x, axis: torch.cummin(x, axis).values, True),
    "softmax": RowFunction(torch.softmax, False, True),
    "variance": RowFunction(lambda x, axis: ((x - x.mean(axis, keepdim=True)) ** 2).sum(axis),
                            False, True),
    "centred": RowFunction(lambda x, axis: x - x.amax(axis, keepdim=True), True, True),
}  # fmt: skip
NEEDS_ELEMENTS = {"amax", "amin", "argmax", "argmin", "centred"}


@helion.kernel
def along_rows(x, out, fn):
    for t in hl.tile(x.size(0)):
        out[t] = fn(x[t, :], 1)


@helion.kernel
def within_rows(x, out, fn):
    for t in hl.tile(x.size(0)):
        out[t, :] = fn(x[t, :], 1)


@helion.kernel
def along_columns(x, out, fn):
    for t in hl.tile(x.size(1)):
        out[t] = fn(x[:, t], 0)


@helion.kernel
def within_columns(x, out, fn):
    for t in hl.tile(x.size(1)):
        out[:, t] = fn(x[:, t], 0)


KERNELS: dict[tuple[int, int], Any] = {
    (1, 1): along_rows,
    (1, 2): within_rows,
    (0, 1): along_columns,
    (0, 2): within_columns,
}


def run(name: str, x: torch.Tensor, axis: int, backend: str, **options: Any) -> torch.Tensor:
    """What a backend makes of a matrix along an axis, by tiles of ``block`` rows or columns."""
    block = options.pop("block", 4)
    fn = FUNCTIONS[name].fn
    like = fn(x, axis)
    kernel = on_backend(KERNELS[axis, like.dim()], backend, **options)
    out = torch.full(like.shape, 77, dtype=torch.float32).to(like.dtype)
    bound = kernel.bind((x, out, fn))
    bound.compile_config(helion.Config(block_sizes=[block]))(x, out, fn)
    return out


def check(name: str, x: torch.Tensor, axis: int, **options: Any) -> None:
    reference = run(name, x, axis, "reference", **options)
    native = run(name, x, axis, "cpu", **options)
    if FUNCTIONS[name].is_exact or not native.dtype.is_floating_point:
        torch.testing.assert_close(native, reference, rtol=0, atol=0, equal_nan=True)
        return
    assert torch.equal(native.isnan(), reference.isnan())
    with_fp64 = FUNCTIONS[name].fn(x.double(), axis)
    # Types of low precision round what stands between the sums.
    roundings = [x.dtype] * (2 if name == "variance" else 1) if x.element_size() < 4 else []
    length = max(2, 2 * x.size(axis))
    check_against(native, with_fp64, reduction_length=length, intermediate=roundings)


def special_rows(columns: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """A row of each kind that has gone wrong in some kernel somewhere."""
    tiny = torch.finfo(dtype).smallest_normal / 8
    rows = [randn(columns, seed=number).to(torch.float64) for number in range(12)]
    rows[1][0] = math.nan
    rows[2][-1] = math.nan
    rows[3][columns // 2] = math.inf
    rows[4][columns // 3] = -math.inf
    rows[5][[0, -1]] = torch.tensor([math.inf, -math.inf], dtype=torch.float64)
    rows[6][:] = -math.inf
    rows[7][:] = math.nan
    rows[8] = rows[8].sign() * tiny * torch.arange(1, columns + 1)
    rows[9] = torch.where(rows[9] > 0, 0.0, -0.0)
    rows[10] = rows[10].round()
    rows[11][:] = 0
    return torch.stack(rows).to(dtype)


@pytest.mark.parametrize("length", SHORT_LENGTHS)
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_lengths_and_contents(name: str, axis: int, length: int) -> None:
    rows = special_rows(length)
    check(name, rows if axis else rows.t().contiguous(), axis)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_lengths_known_at_run_time_only(name: str, axis: int) -> None:
    for length in LENGTHS:
        rows = special_rows(length)
        check(name, rows if axis else rows.t().contiguous(), axis, static_shapes=False)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_lanes_across_and_along_memory(name: str, axis: int) -> None:
    # The other way round in memory, and with gaps.
    rows = special_rows(53)
    check(name, rows.t().contiguous().t() if axis else rows.t(), axis)
    wide = torch.full((24, 106), math.nan)
    wide[::2, ::2] = rows
    check(name, wide[::2, ::2] if axis else wide[::2, ::2].t(), axis)


@pytest.mark.parametrize("block", [1, 2, 16, 64])
@pytest.mark.parametrize("rows", [0, 1, 3, 17])
@pytest.mark.parametrize("name", ["sum", "argmax", "softmax", "cumsum", "any"])
def test_few_rows_in_tiles_of_any_size(name: str, rows: int, block: int) -> None:
    for axis in (0, 1):
        x = special_rows(W + 3)[:1].expand(rows, -1).contiguous() * torch.arange(rows)[:, None]
        check(name, x if axis else x.t().contiguous(), axis, block=block)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name not in NEEDS_ELEMENTS])
def test_rows_without_elements(name: str, axis: int) -> None:
    x = torch.empty((3, 0) if axis else (0, 3))
    fn = FUNCTIONS[name].fn
    for static_shapes in (True, False):
        found = run(name, x, axis, "cpu", static_shapes=static_shapes)
        torch.testing.assert_close(found, fn(x, axis), rtol=0, atol=0, equal_nan=True)


INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.bool)
OF_INTEGERS = [name for name, row in FUNCTIONS.items() if not row.of_floats_only]


# Torch defines no order of booleans for these.
OF_BOOLEANS = [name for name in OF_INTEGERS if name not in ("argmax", "argmin", "cummin")]
EXACT_CASES = [
    pytest.param(name, dtype, id=f"{name}-{dtype}")
    for dtype in INTEGERS
    for name in (OF_BOOLEANS if dtype == torch.bool else OF_INTEGERS)
]


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize(("name", "dtype"), EXACT_CASES)
def test_integers_and_booleans(name: str, dtype: torch.dtype, axis: int) -> None:
    for length in SHORT_LENGTHS:
        x = random_tensor((5, length), dtype)
        if dtype != torch.bool:
            x[1, 0], x[2, -1] = torch.iinfo(dtype).min, torch.iinfo(dtype).max
            x[3] = torch.iinfo(dtype).max
        x[4] = 0
        matrix = x if axis else x.t().contiguous()
        native = run(name, matrix, axis, "cpu", static_shapes=False)
        assert torch.equal(native, FUNCTIONS[name].fn(matrix, axis))


FLOATS = (torch.float64, torch.float16, torch.bfloat16)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_other_floats(name: str, dtype: torch.dtype, axis: int) -> None:
    for length in SHORT_LENGTHS:
        rows = special_rows(length, dtype)
        check(name, rows if axis else rows.t().contiguous(), axis, static_shapes=False)


@helion.kernel
def of_bytes(x, out):
    for t in hl.tile(x.size(0)):
        row = x[t, :].to(torch.float32)
        out[t, 0] = row.sum(1)
        out[t, 1] = row.amax(1)
        out[t, 2] = functional.softmax(row, 1).amin(1)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2], ids=str)
def test_floats_of_8_bits(dtype: torch.dtype) -> None:
    codes = torch.arange(256, dtype=torch.uint8).view(dtype).view(16, 16)
    for x in (codes, codes[:, : W - 1].contiguous(), codes[:, :1].contiguous()):
        found = [torch.empty(16, 3) for _ in range(2)]
        for backend, out in zip(("reference", "cpu"), found):
            on_backend(of_bytes, backend)(x, out)
        reference, native = found
        assert torch.equal(native.isnan(), reference.isnan())
        wide = x.double()
        soft = torch.softmax(wide, 1).amin(1)
        exact = torch.stack([wide.sum(1), wide.amax(1), soft], 1)
        check_against(native, exact, reduction_length=16)
