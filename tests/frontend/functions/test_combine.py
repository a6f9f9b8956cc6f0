"""Combine functions of the user's own: every extent and type, forms of calling, fast paths."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.conformance.case import randn
from tests.conformance.combine_kernels import chained, far, farther, running, scanned
from tests.host_backends import BACKENDS, on_backend
from tilesmith.ir.printer import print_function
from tilesmith.numerics.compare import check_against

EXTENTS = (1, 2, 13, 16, 17, 1000)
DTYPES = (torch.float32, torch.bfloat16, torch.int32)

backends = pytest.mark.parametrize("backend", BACKENDS)


@helion.kernel(ignore_warnings=["ReduceIdentityNotGiven"])
def to_vector(x, out, fn):
    for t in hl.tile(x.size(0), block_size=4):
        out[t] = fn(x[t, :])


@helion.kernel
def to_matrix(x, out, fn):
    for t in hl.tile(x.size(0), block_size=4):
        out[t, :] = fn(x[t, :])


@helion.kernel(ignore_warnings=["ReduceIdentityNotGiven"])
def columns_to_vector(x, out, fn):
    for t in hl.tile(x.size(1), block_size=32):
        out[t] = fn(x[:, t])


def vector_of(fn: Callable[..., Any], x: torch.Tensor, backend: str = "cpu") -> torch.Tensor:
    out = torch.empty_like(x[:, 0])
    on_backend(to_vector, backend)(x, out, fn)
    return out


def matrix_of(fn: Callable[..., Any], x: torch.Tensor, backend: str = "cpu") -> torch.Tensor:
    out = torch.empty_like(x)
    on_backend(to_matrix, backend)(x, out, fn)
    return out


def text_of(fn: Callable[..., Any], x: torch.Tensor) -> str:
    return print_function(to_vector.bind((x, torch.empty_like(x[:, 0]), fn)).function)


def numbers(rows: int, extent: int, dtype: torch.dtype) -> torch.Tensor:
    x = randn(rows, extent)
    return x.to(dtype) if dtype.is_floating_point else (x * 100).to(dtype)


# --- extents and types ---------------------------------------------------------------------------


@backends
@pytest.mark.parametrize("extent", EXTENTS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_reduction_along_rows_and_columns(dtype, extent: int, backend: str):
    x = numbers(5, extent, dtype)
    found = vector_of(lambda row: hl.reduce(farther, row, dim=1), x, backend)
    assert torch.equal(found, running(far, (x,), 1)[-1][0])
    turned = torch.empty_like(x[0])
    on_backend(columns_to_vector, backend)(x, turned, lambda tile: hl.reduce(farther, tile, 0))
    assert torch.equal(turned, running(far, (x,), 0)[-1][0])


@backends
@pytest.mark.parametrize("extent", EXTENTS)
@pytest.mark.parametrize("reverse", [False, True])
def test_scan_in_both_directions(reverse: bool, extent: int, backend: str):
    x = randn(5, extent).sigmoid()

    def fn(row):
        return hl.associative_scan(chained, (row, row), 1, reverse)[1]

    wide = x.double()
    expected = scanned(chained, (wide, wide), 1, reverse)[1]
    check_against(matrix_of(fn, x, backend), expected, reduction_length=extent)


@backends
@pytest.mark.parametrize("dtype", [torch.bool, torch.int8, torch.uint8, torch.float64], ids=str)
def test_other_types(dtype, backend: str):
    x = (randn(5, 13) * 100).abs().to(dtype)

    def fn(row):
        return hl.reduce(lambda a, b: torch.where(a != b, a, b), row, dim=1, other=0)

    assert torch.equal(vector_of(fn, x, backend), x[:, 0])


@backends
def test_an_empty_axis_gives_other(backend: str):
    x = torch.empty(5, 0)
    out = torch.empty(5)
    on_backend(to_vector, backend)(x, out, lambda row: hl.reduce(farther, row, 1, other=7))
    assert torch.equal(out, torch.full([5], 7.0))


# --- forms of calling ----------------------------------------------------------------------------


def nearer(a, b):
    return torch.where(a.abs() <= b.abs(), a, b)


def pairs(left, right):
    return left[0] + right[1] * 0 + right[0], torch.minimum(left[1], right[1])


CALLS = {
    "tuples": pairs,
    "elements": lambda a, b, c, d: pairs((a, b), (c, d)),
    "any number": lambda *elements: pairs(elements[:2], elements[2:]),
    "default argument": lambda a, b, scale=1: pairs(a, (b[0] * scale, b[1])),
    "list": lambda a, b: list(pairs(a, b)),
    "partial": functools.partial(lambda scale, a, b: pairs(a, (b[0] * scale, b[1])), 1),
}


@pytest.mark.parametrize("name", CALLS)
def test_functions_of_pairs(name: str):
    x = randn(5, 13)

    def fn(row):
        total, least = hl.reduce(CALLS[name], (row, row * 2), dim=1, other=(0, float("inf")))
        return total + least

    exact = x.double()
    expected = exact.sum(1) + 2 * exact.amin(1)
    check_against(vector_of(fn, x), expected, reduction_length=13)


def test_a_tuple_of_one_stays_a_tuple():
    x = randn(5, 13)

    def fn(row):
        (found,) = hl.reduce(lambda a, b: (farther.fn(a[0], b[0]),), (row,), dim=1, other=0)
        return found

    assert torch.equal(vector_of(fn, x), running(far, (x,), 1)[-1][0])


@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 5), (1, 1), (2, 1, 7)])
def test_all_dimensions_at_once(shape):
    x = randn(6, *shape)

    @helion.kernel(ignore_warnings=["ReduceIdentityNotGiven"])
    def kernel(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty([x.size(0)], dtype=x.dtype, device=x.device)
        for i in hl.grid(x.size(0)):
            out[i] = hl.reduce(farther, x[i])
        return out

    assert torch.equal(kernel(x), running(far, (x.flatten(1),), 1)[-1][0])


def test_kept_dimensions():
    x = randn(5, 13)
    found = matrix_of(lambda row: row - hl.reduce(farther, row, 1, other=0, keep_dims=True), x)
    assert torch.equal(found, x - running(far, (x,), 1)[-1][0][:, None])


def test_numbers_known_at_run_time_only():
    @helion.kernel
    def kernel(x: torch.Tensor, scale: float, shift: int) -> torch.Tensor:
        out = torch.empty_like(x)
        for t in hl.tile(x.size(0)):
            row = x[t, :]
            out[t, :] = hl.associative_scan(lambda a, b: a * scale + b, row, 1) * scale + shift
        return out

    x = randn(5, 13)
    for scale, shift in ((0.5, 1), (0.25, 3)):
        exact = x.double()
        (steps,) = scanned(lambda a, b, s=scale: (a[0] * s + b[0],), (exact,), 1)
        check_against(kernel(x, scale, shift), steps * scale + shift, reduction_length=13)


def test_a_block_size_may_be_used_inside():
    @helion.kernel
    def kernel(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        for t in hl.tile(x.size(0), block_size=4):
            row = x[t, :]
            out[t, :] = hl.associative_scan(lambda a, b: a * t.block_size + b, row, 1)  # noqa: B023
        return out

    x = (randn(6, 5) * 4).round()
    (expected,) = scanned(lambda a, b: (a[0] * 4 + b[0],), (x,), 1)
    assert torch.equal(kernel(x), expected)


def test_the_function_of_torch_by_its_full_name():
    @helion.kernel
    def kernel(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        for t in hl.tile(x.size(0)):
            out[t, :] = torch._higher_order_ops.associative_scan(  # pyright: ignore[reportAttributeAccessIssue]
                farther, x[t, :], 1, reverse=True, combine_mode="pointwise"
            )
        return out

    x = randn(5, 13)
    assert torch.equal(kernel(x), scanned(far, (x,), 1, reverse=True)[0])


# --- fast paths and identities -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fn", "kind"),
    [
        (operator.add, "sum"),
        (lambda a, b: b + a, "sum"),
        (torch.mul, "prod"),
        (torch.maximum, "max"),
        (torch.min, "min"),
    ],
)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_plain_functions_become_plain_reductions(fn, kind: str, dtype):
    x = numbers(5, 13, dtype).clamp(-2, 2)
    text = text_of(lambda row: hl.reduce(fn, row, dim=1), x)
    assert f'kind="{kind}"' in text
    assert "reduce_with" not in text
    found = vector_of(lambda row: hl.reduce(fn, row, dim=1), x)
    exact = x.double() if dtype.is_floating_point else x
    reference = {"sum": exact.sum(1), "prod": exact.prod(1), "max": exact.amax(1)}
    check_against(found, reference.get(kind, exact.amin(1)).to(exact.dtype), reduction_length=13)


@pytest.mark.parametrize(
    ("fn", "expected"),
    [
        (operator.add, torch.any),
        (torch.logical_or, torch.any),
        (torch.maximum, torch.any),
        (operator.and_, torch.all),
        (torch.minimum, torch.all),
    ],
)
def test_bools_are_combined_as_truth_values(fn, expected):
    x = torch.tensor([[True] * 13, [False] * 13, [True] * 12 + [False]])
    assert torch.equal(vector_of(lambda row: hl.reduce(fn, row, dim=1), x), expected(x, 1))


def test_another_identity_than_the_known_one_is_kept():
    x = randn(5, 13)
    text = text_of(lambda row: hl.reduce(torch.maximum, row, dim=1, other=0), x)
    assert "reduce_with" in text
    assert "others=[0.0]" in text
    known = text_of(lambda row: hl.reduce(torch.maximum, row, dim=1, other=float("-inf")), x)
    assert "reduce_with" not in known


@pytest.mark.parametrize(
    ("fn", "is_filled"),
    [
        (lambda a, b: a + b + a * b, True),
        (lambda a, b: a * b * 1.5, False),
        (lambda a, b: torch.exp(a) + b, False),
        (farther, True),
    ],
)
def test_zero_fills_masked_lanes_only_where_it_changes_nothing(fn, is_filled: bool):
    text = text_of(lambda row: hl.reduce(fn, row, dim=1), randn(5, 13))
    assert "reduce_with" in text
    assert ("others=[0.0]" in text) == is_filled


@pytest.mark.parametrize(
    ("fn", "other", "count"),
    [
        (operator.add, None, 0),
        (torch.maximum, None, 1),
        (farther, None, 0),
        (nearer, None, 1),
        (torch.maximum, 0, 0),
        (lambda a, b: torch.exp(a) + b, None, 1),
    ],
)
def test_a_missing_identity_is_remarked_on(fn, other, count: int, capsys):
    given = {} if other is None else {"other": other}
    # A kernel of its own remembers nothing of what other kernels have printed.
    kernel = helion.kernel(to_vector.fn)
    x = randn(5, 13)
    kernel(x, torch.empty_like(x[:, 0]), lambda row: hl.reduce(fn, row, 1, **given))
    assert capsys.readouterr().err.count("ReduceIdentityNotGiven") == count
