"""Every scan of the table and of the language against eager: type, values, corners, mistakes."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.conformance.case import randn
from tests.frontend.functions.torch_calls import eager
from tests.host_backends import BACKENDS, on_backend
from tilesmith import exc
from tilesmith.frontend.functions.combine import SCANS
from tilesmith.ir.printer import print_function
from tilesmith.numerics.compare import check_against

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int32, torch.bool)
EXTENTS = (1, 5, 8, 13)

backends = pytest.mark.parametrize("backend", BACKENDS)


@dataclass(frozen=True)
class ScanCall:
    """A call on a matrix that keeps its shape, and what it means in eager torch.

    ``is_rounded`` tells sums, whose order is free, from what must have eager's bits.
    """

    name: str
    fn: Callable[..., Any]
    reference: Callable[..., Any]
    is_rounded: bool = False

    def __str__(self) -> str:
        return self.name


def _same(name: str, fn: Callable[..., Any], *, is_rounded: bool = False) -> ScanCall:
    return ScanCall(name, fn, fn, is_rounded)


def backwards(fn: Callable[..., Any], dim: int) -> Callable[..., Any]:
    return lambda x: fn(x.flip(dim), dim).flip(dim)


TORCH = [
    _same("cumsum", lambda x: torch.cumsum(x, 1), is_rounded=True),
    _same("cumsum-method", lambda x: x.cumsum(dim=-1), is_rounded=True),
    _same("cumsum-rows", lambda x: torch.cumsum(x, 0), is_rounded=True),
    _same("cumsum-dtype", lambda x: x.cumsum(1, dtype=torch.float32), is_rounded=True),
    _same("cumprod", lambda x: torch.cumprod(x, 1), is_rounded=True),
    _same("cumprod-method", lambda x: x.cumprod(0), is_rounded=True),
    _same("cummax", lambda x: torch.cummax(x, 1)[0]),
    _same("cummax-indices", lambda x: torch.cummax(x, 1).indices),
    _same("cummax-rows", lambda x: x.cummax(dim=0).indices),
    _same("cummin", lambda x: torch.cummin(x, -1).values),
    _same("cummin-indices", lambda x: x.cummin(1)[1]),
]
LANGUAGE = [
    ScanCall("hl-sum", lambda x: hl.cumsum(x, 1), lambda x: x.cumsum(1), True),
    ScanCall(
        "hl-sum-back",
        lambda x: hl.cumsum(x, 1, reverse=True),
        backwards(torch.cumsum, 1),
        True,
    ),
    ScanCall(
        "hl-prod-back",
        lambda x: hl.cumprod(x, dim=-1, reverse=True),
        backwards(torch.cumprod, 1),
        True,
    ),
    ScanCall(
        "scan-add",
        lambda x: hl.associative_scan(lambda a, b: b + a, x, 1),
        lambda x: x.cumsum(1),
        True,
    ),
    ScanCall(
        "scan-mul",
        lambda x: hl.associative_scan(operator.mul, x, 0),
        lambda x: x.cumprod(0),
        True,
    ),
    ScanCall(
        "scan-max",
        lambda x: hl.associative_scan(torch.maximum, x, 1, reverse=True),
        backwards(lambda x, dim: x.cummax(dim).values, 1),
    ),
    ScanCall(
        "scan-min",
        lambda x: hl.associative_scan(torch.minimum, x, dim=1),
        lambda x: x.cummin(1).values,
    ),
]


@helion.kernel
def to_matrix(x, out, fn):
    block = hl.register_block_size(16)
    for t in hl.tile(x.size(0), block_size=block):
        out[t, :] = fn(x[t, :])


def run(call: ScanCall, x: torch.Tensor, backend: str) -> torch.Tensor:
    """What a kernel makes of a call, stored in a tensor of the type that device code gives it."""
    seen: list[torch.dtype] = []

    def fn(tile: Any) -> Any:
        result = call.fn(tile)
        seen.append(result.dtype)
        return result

    kernel = on_backend(to_matrix, backend)
    kernel.bind((x, torch.empty_like(x), fn))
    out = torch.empty_like(x, dtype=seen[0])
    # One tile holds all rows, since some calls run along them.
    kernel.bind((x, out, fn)).compile_config(helion.Config(block_sizes=[16]))(x, out, fn)
    return out


def sample(dtype: torch.dtype, extent: int) -> torch.Tensor:
    x = randn(6, extent)
    if dtype == torch.bool:
        return x > 0.3
    # Ties, and a row of zeros.
    x[3] = x[3].round()
    x[4] = 0
    return x.to(dtype) if dtype.is_floating_point else (x * 4).round().to(dtype)


def check(call: ScanCall, x: torch.Tensor, expected: torch.Tensor, backend: str) -> None:
    result = run(call, x, backend)
    assert result.dtype == expected.dtype
    if not call.is_rounded or not expected.dtype.is_floating_point:
        torch.testing.assert_close(result, expected, rtol=0, atol=0, equal_nan=True)
        return
    exact = call.reference(x.double() if x.dtype.is_floating_point else x).double()
    check_against(result, exact, reduction_length=2 * max(x.shape))


def supported(calls: list[ScanCall]) -> list[Any]:
    return [
        pytest.param(call, dtype, id=f"{call}-{dtype}")
        for call in calls
        for dtype in DTYPES
        if eager(call.reference, sample(dtype, 5)) is not None
    ]


@backends
@pytest.mark.parametrize("extent", EXTENTS)
@pytest.mark.parametrize(("call", "dtype"), supported(TORCH))
def test_torch_scans(call: ScanCall, dtype: torch.dtype, extent: int, backend: str) -> None:
    x = sample(dtype, extent)
    check(call, x, call.reference(x), backend)


@backends
@pytest.mark.parametrize("extent", EXTENTS)
@pytest.mark.parametrize("dtype", DTYPES[:-1], ids=str)
@pytest.mark.parametrize("call", LANGUAGE, ids=str)
def test_scans_of_the_language_keep_the_type(
    call: ScanCall, dtype: torch.dtype, extent: int, backend: str
) -> None:
    x = sample(dtype, extent)
    check(call, x, call.reference(x).to(dtype), backend)


@backends
@pytest.mark.parametrize("call", LANGUAGE[:3], ids=str)
def test_bools_are_counted(call: ScanCall, backend: str) -> None:
    x = sample(torch.bool, 13)
    check(call, x, call.reference(x), backend)


@backends
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("call", [*TORCH, *LANGUAGE], ids=str)
def test_nan_and_infinity_go_where_eager_sends_them(
    call: ScanCall, dtype: torch.dtype, bad: float, backend: str
) -> None:
    x = sample(dtype, 5) + 3
    x[0, 2] = bad
    x[1, 0], x[1, 3] = bad, float("inf")
    x[2] = bad
    result, expected = run(call, x, backend), call.reference(x)
    if not expected.dtype.is_floating_point:
        assert torch.equal(result, expected)
        return
    assert torch.equal(result.isnan(), expected.isnan())
    assert torch.equal(result.isinf(), expected.isinf())
    assert torch.equal(result.sign()[result.isinf()], expected.sign()[expected.isinf()])


def test_every_row_of_the_table_is_called() -> None:
    assert set(SCANS) == {call.name.split("-")[0] for call in TORCH}


@helion.kernel
def longest(a, b):
    return torch.maximum(a, b)


@helion.kernel
def with_decorated_function(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t, :] = hl.associative_scan(longest, x[t, :], 1)
    return out


@backends
def test_the_decorator_of_a_combine_function_is_ignored(backend: str) -> None:
    x = randn(5, 13)
    kernel = on_backend(with_decorated_function, backend)
    assert torch.equal(kernel(x), x.cummax(1).values)


def test_what_a_combine_function_does_leaves_nothing_behind() -> None:
    text = print_function(with_decorated_function.bind((randn(5, 13),)).function)
    assert "scan(" in text
    assert "maximum" not in text


def anything(value: Any) -> Any:
    """A value that the type checker would rightly refuse."""
    return value


@pytest.mark.parametrize(
    ("fn", "error", "text"),
    [
        (lambda x: hl.cumsum(anything(3), 0), exc.InvalidArgumentKind, "is no device value"),
        (lambda x: hl.cumsum(x, 2), exc.ReductionDimInvalidForShape, "dim=2 is out of range"),
        (lambda x: hl.cumsum(x, anything(1.5)), exc.InvalidReductionDim, "dim=1.5"),
    ],
)  # fmt: skip
def test_mistakes_are_told_at_their_line(fn, error, text: str) -> None:
    with pytest.raises(error, match=text) as caught:
        to_matrix(randn(5, 13), randn(5, 13), fn)
    assert "test_torch_scans.py" in str(caught.value)
