"""Every reduction and normalisation of the table against eager: type, shape, values, corners."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch.nn import functional

import tilesmith as helion
import tilesmith.language as hl
from tests.conformance.case import randn
from tests.frontend.functions.torch_calls import eager
from tests.host_backends import BACKENDS, on_backend
from tilesmith.frontend.functions.reduction import REDUCTIONS
from tilesmith.numerics.compare import check_against

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.int32, torch.bool)
EXTENTS = (1, 5, 8, 13)
BAD = (float("nan"), float("inf"), float("-inf"))

backends = pytest.mark.parametrize("backend", BACKENDS)


@dataclass(frozen=True)
class Reduction:
    """A call that reduces the last axis of a matrix, or keeps its shape.

    ``is_rounded`` tells sums, whose order is free, from what must have eager's bits.
    """

    name: str
    fn: Callable[..., Any]
    is_rounded: bool = False
    variant: str = ""

    def __str__(self) -> str:
        return f"{self.name}{'-' if self.variant else ''}{self.variant}"


def _both(name: str, *, is_rounded: bool = False, **kwargs: Any) -> list[Reduction]:
    fn = getattr(torch, name)
    return [
        Reduction(name, lambda x: fn(x, dim=1, **kwargs), is_rounded),
        Reduction(name, lambda x: fn(x, dim=-1, keepdim=True, **kwargs), is_rounded, "keepdim"),
        Reduction(name, lambda x: getattr(x, name)(1, **kwargs), is_rounded, "method"),
    ]


CALLS = [
    *_both("sum", is_rounded=True),
    *_both("mean", is_rounded=True),
    *_both("prod", is_rounded=True),
    *_both("amax"),
    *_both("amin"),
    *_both("argmax"),
    *_both("argmin"),
    *_both("any"),
    *_both("all"),
    *_both("logsumexp", is_rounded=True),
    *_both("nansum", is_rounded=True),
    *_both("var", is_rounded=True),
    *_both("std", is_rounded=True),
    Reduction("sum", lambda x: x.sum(1, dtype=torch.float32), True, "dtype"),
    Reduction("sum", lambda x: x.sum(axis=1, keepdims=True), True, "numpy"),
    Reduction("mean", lambda x: x.mean(1, dtype=torch.float32), True, "dtype"),
    Reduction("max", lambda x: x.max(1)[0], False, "values"),
    Reduction("max", lambda x: torch.max(x, dim=1).indices, False, "indices"),
    Reduction("min", lambda x: x.min(dim=1, keepdim=True)[0], False, "values"),
    Reduction("min", lambda x: torch.min(x, 1)[1], False, "indices"),
    Reduction("count_nonzero", lambda x: torch.count_nonzero(x, dim=1)),
    Reduction("var", lambda x: x.var(1, correction=0), True, "correction"),
    Reduction("var", lambda x: x.var(1, unbiased=False), True, "unbiased"),
    Reduction("var_mean", lambda x: torch.var_mean(x, 1)[0], True, "variance"),
    Reduction("var_mean", lambda x: torch.var_mean(x, 1, keepdim=True)[1], True, "mean"),
    Reduction("std_mean", lambda x: torch.std_mean(x, 1)[0], True, "deviation"),
    Reduction("aminmax", lambda x: torch.aminmax(x, dim=1)[0], False, "min"),
    Reduction("aminmax", lambda x: torch.aminmax(x, dim=1, keepdim=True)[1], False, "max"),
    Reduction("nanmean", lambda x: torch.nanmean(x, 1), True),
    Reduction("softmin", lambda x: functional.softmin(x, 1), True),
    Reduction("norm", lambda x: torch.norm(x, dim=1), True),
    Reduction("norm", lambda x: torch.norm(x, p=1, dim=1, keepdim=True), True, "1"),
    Reduction("norm", lambda x: x.norm(p=float("inf"), dim=1), True, "inf"),
    Reduction("softmax", lambda x: torch.softmax(x, 1), True),
    Reduction(
        "softmax", lambda x: functional.softmax(x, dim=-1, dtype=torch.float32), True, "dtype"
    ),
    Reduction("log_softmax", lambda x: functional.log_softmax(x, dim=1), True),
    Reduction("normalize", lambda x: functional.normalize(x, dim=1), True),
    Reduction("normalize", lambda x: functional.normalize(x, p=1.0, dim=1, eps=0.5), True, "1"),
    Reduction("layer_norm", lambda x: functional.layer_norm(x, [x.shape[1]]), True),
    Reduction("rms_norm", lambda x: functional.rms_norm(x.float(), [x.shape[1]]), True),
    Reduction("rms_norm", lambda x: functional.rms_norm(x, [x.shape[1]], eps=1e-3), True, "eps"),
]


@helion.kernel
def to_rows(x, out, fn):
    for t in hl.tile(x.size(0)):
        out[t] = fn(x[t, :])


@helion.kernel
def to_matrix(x, out, fn):
    for t in hl.tile(x.size(0)):
        out[t, :] = fn(x[t, :])


def run(call: Reduction, x: torch.Tensor, like: torch.Tensor, backend: str) -> torch.Tensor:
    """What a kernel makes of a call, stored in a tensor of the type that device code gives it."""
    seen: list[tuple[torch.dtype, int]] = []

    def fn(tile: Any) -> Any:
        result = call.fn(tile)
        seen.append((result.dtype, result.dim()))
        return result

    kernel = on_backend(to_rows if like.dim() == 1 else to_matrix, backend)
    kernel.bind((x, torch.empty_like(like), fn))
    dtype, rank = seen[0]
    assert rank == like.dim()
    out = torch.empty_like(like, dtype=dtype)
    kernel.bind((x, out, fn)).compile_config(helion.Config(block_sizes=[4]))(x, out, fn)
    return out


def sample(dtype: torch.dtype, extent: int) -> torch.Tensor:
    x = randn(6, extent)
    if dtype == torch.bool:
        return x > 0.3
    # Ties, and a row of zeros.
    x[3] = x[3].round()
    x[4] = 0
    return x.to(dtype) if dtype.is_floating_point else (x * 4).round().to(dtype)


def check(call: Reduction, x: torch.Tensor, backend: str) -> None:
    expected = eager(call.fn, x)
    assert expected is not None
    result = run(call, x, expected, backend)
    assert result.dtype == expected.dtype
    assert result.shape == expected.shape
    if not call.is_rounded or not expected.dtype.is_floating_point:
        torch.testing.assert_close(result, expected, rtol=0, atol=0, equal_nan=True)
        return
    exact = call.fn(x.double() if x.dtype.is_floating_point else x).double()
    check_against(result, exact, reduction_length=2 * x.size(1))


def supported(*dtypes: torch.dtype) -> list[Any]:
    """Calls with the element types that eager takes."""
    return [
        pytest.param(call, dtype, id=f"{call}-{dtype}")
        for call in CALLS
        for dtype in dtypes
        if eager(call.fn, sample(dtype, 5)) is not None
    ]


@backends
@pytest.mark.parametrize("extent", EXTENTS)
@pytest.mark.parametrize(("call", "dtype"), supported(*DTYPES))
@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
def test_reductions(call: Reduction, extent: int, dtype: torch.dtype, backend: str) -> None:
    check(call, sample(dtype, extent), backend)


@backends
@pytest.mark.parametrize(("call", "dtype"), supported(torch.uint8))
def test_reductions_of_bytes(call: Reduction, dtype: torch.dtype, backend: str) -> None:
    check(call, sample(torch.int32, 5).abs().to(dtype), backend)


@backends
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("bad", BAD, ids=str)
# Eager finds the mean next to a variance step by step, and a step from inf is NaN: ours is inf.
@pytest.mark.parametrize("call", [call for call in CALLS if call.variant != "mean"], ids=str)
def test_nan_and_infinity_go_where_eager_sends_them(
    call: Reduction, bad: float, dtype: torch.dtype, backend: str
) -> None:
    x = sample(dtype, 5)
    x[0, 2] = bad
    x[1, 0], x[1, 3] = bad, float("inf")
    x[2] = bad
    x[4] = 1  # not 0: in fp16 eager's functional.normalize divides by an eps that is 0
    expected = eager(call.fn, x)
    assert expected is not None
    result = run(call, x, expected, backend)
    if not expected.dtype.is_floating_point:
        assert torch.equal(result, expected)
        return
    assert torch.equal(result.isnan(), expected.isnan())
    assert torch.equal(result.isinf(), expected.isinf())
    signs = result.isinf()
    assert torch.equal(result[signs] > 0, expected[signs] > 0)


def test_every_row_of_the_table_is_called() -> None:
    assert set(REDUCTIONS) - {call.name for call in CALLS} == set()


@helion.kernel
def affine_layer_norm(x, weight, bias, out):
    for t in hl.tile(x.size(0)):
        out[t, :] = functional.layer_norm(x[t, :], [x.size(1)], weight[:], bias[:], eps=1e-3)


@backends
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_layer_norm_with_weight_and_bias(dtype: torch.dtype, backend: str) -> None:
    x, weight, bias = (
        randn(*shape, seed=i, dtype=dtype) for i, shape in enumerate(((6, 13), (13,), (13,)))
    )
    out = torch.empty_like(x)
    on_backend(affine_layer_norm, backend)(x, weight, bias, out)
    exact = functional.layer_norm(x.double(), [13], weight.double(), bias.double(), eps=1e-3)
    check_against(out, exact, reduction_length=26)


@helion.kernel
def several_axes(x, out):
    for t in hl.tile(x.size(0)):
        out[t, 0] = x[t, :, :].sum((1, 2))
        out[t, 1] = x[t, :, :].amax(dim=[1, -1])
        out[t, 2] = x[t, :, :].mean((-1, -2))


@backends
def test_several_axes_at_once(backend: str) -> None:
    x = randn(6, 5, 7)
    out = torch.empty(6, 3)
    bound = on_backend(several_axes, backend).bind((x, out))
    bound.compile_config(helion.Config(block_sizes=[4]))(x, out)
    wide = x.double()
    exact = torch.stack([wide.sum((1, 2)), wide.amax((1, 2)), wide.mean((1, 2))], 1)
    check_against(out, exact, reduction_length=35)


@backends
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_default_epsilon_of_rms_norm_is_that_of_the_computing_type(
    dtype: torch.dtype, backend: str
) -> None:
    x = torch.full((4, 5), 1e-3, dtype=dtype)
    out = torch.empty_like(x)
    on_backend(to_matrix, backend)(x, out, lambda tile: functional.rms_norm(tile, [5]))
    torch.testing.assert_close(out, functional.rms_norm(x, [5]))


@helion.kernel
def means_of_parts(x, out):
    for t in hl.tile(x.size(0), block_size=4):
        out[t.id, 0] = x[t].mean()
        out[t.id, 1] = x[t].var(correction=0)
    return out


@backends
@pytest.mark.parametrize("size", [3, 4, 10, 13])
def test_a_last_part_that_is_shorter_is_divided_by_its_own_length(size: int, backend: str) -> None:
    x = randn(size, seed=3)
    found = on_backend(means_of_parts, backend)(x, torch.empty(-(-size // 4), 2))
    parts = x.double().split(4)
    exact = torch.stack([torch.stack([part.mean(), part.var(correction=0)]) for part in parts])
    check_against(found, exact, reduction_length=4)
