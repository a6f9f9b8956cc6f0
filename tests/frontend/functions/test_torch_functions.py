"""Every elementwise torch function of the table against eager: element type, values, corners.

By the interpreter and as native code.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.frontend.functions.composite_calls import (
    COMPOSITE_BINARY,
    COMPOSITE_UNARY,
    NOT_ELEMENTWISE,
)
from tests.frontend.functions.torch_calls import BINARY, EXACT, TERNARY, UNARY, Call, eager, sample
from tests.host_backends import BACKENDS, on_backend
from tilesmith.frontend.functions.elementwise import ELEMENTWISE
from tilesmith.frontend.functions.pointwise import POINTWISE
from tilesmith.frontend.functions.special_functions import SPECIAL_FUNCTIONS
from tilesmith.numerics.tolerance import ulp_distance, ulp_error

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.int32, torch.bool)
CONFIG = helion.Config(block_sizes=[8])
CALLS = [*UNARY, *COMPOSITE_UNARY, *BINARY, *COMPOSITE_BINARY, *TERNARY]
ROWS = {*ELEMENTWISE, *POINTWISE, *SPECIAL_FUNCTIONS}
NATIVE_ULP = {"erfc": 2}
"""Bounds of native code that are wider than those of torch's own functions."""

backends = pytest.mark.parametrize("backend", BACKENDS)


@helion.kernel
def apply_1(x, out, fn):
    for t in hl.tile(x.size(0)):
        out[t] = fn(x[t])


@helion.kernel
def apply_2(x, y, out, fn):
    for t in hl.tile(x.size(0)):
        out[t] = fn(x[t], y[t])


@helion.kernel
def apply_3(x, y, z, out, fn):
    for t in hl.tile(x.size(0)):
        out[t] = fn(x[t], y[t], z[t])


KERNELS: dict[int, Any] = {1: apply_1, 2: apply_2, 3: apply_3}


def run(call: Call, backend: str, *tensors: torch.Tensor) -> torch.Tensor:
    """What a kernel makes of a call, in the element type device code gives it."""
    seen: list[torch.dtype] = []

    def fn(*tiles: Any) -> Any:
        result = call.fn(*tiles)
        seen.append(result.dtype)
        return result

    kernel = on_backend(KERNELS[len(tensors)], backend)
    # Storing converts: only a tensor of the very type keeps what was computed.
    kernel.bind((*tensors, torch.empty(len(tensors[0])), fn))
    out = torch.empty(len(tensors[0]), dtype=seen[0])
    bound = kernel.bind((*tensors, out, fn))
    bound.compile_config(CONFIG)(*tensors, out, fn)
    return out


def check(call: Call, backend: str, *tensors: torch.Tensor) -> None:
    expected = eager(call.fn, *tensors)
    assert expected is not None
    result = run(call, backend, *tensors)
    assert result.dtype == expected.dtype
    if not expected.dtype.is_floating_point:
        assert torch.equal(result, expected)
        return
    assert torch.equal(result.isnan(), expected.isnan())
    assert torch.equal(result.isinf(), expected.isinf())
    if call.ulp == EXACT:
        torch.testing.assert_close(result, expected, rtol=0, atol=0, equal_nan=True)
        zero = (expected == 0) & (result == 0)
        assert torch.equal(result.signbit()[zero], expected.signbit()[zero])
        return
    finite = expected.isfinite()
    distance = ulp_distance(result[finite], expected[finite])
    exact = call.fn(*(t if t.dtype == torch.bool else t.double() for t in tensors)).double()
    eager_error = ulp_error(expected[finite], exact[finite], expected.dtype)
    error = ulp_error(result[finite], exact[finite], expected.dtype)
    # Near eager, or no farther from the truth than a few roundings; subnormals may be flushed.
    is_normal = exact[finite].abs() >= torch.finfo(expected.dtype).smallest_normal
    ulp = max(call.ulp, NATIVE_ULP.get(call.names, 0) if backend == "cpu" else 0)
    bad = (distance > ulp) & (error > eager_error + ulp) & is_normal
    assert not bad.any(), [t[finite][bad].tolist() for t in (*tensors, result, expected)]


def samples(call: Call, *dtypes: torch.dtype) -> list[torch.Tensor]:
    """One input per element type. Of two types, values that both hold."""
    domain = call.domain if len(set(dtypes)) == 1 else "shift"
    tensors = [sample(dtype, domain, seed) for seed, dtype in enumerate(dtypes)]
    return [tensor[: min(map(len, tensors))] for tensor in tensors]


def supported(calls: list[Call], dtypes: tuple[tuple[torch.dtype, ...], ...]) -> list[Any]:
    """Calls with the element types that eager takes."""
    return [
        pytest.param(call, types, id=f"{call}-{'-'.join(map(str, dict.fromkeys(types)))}")
        for call in calls
        for types in dtypes
        if eager(call.fn, *samples(call, *types)) is not None
    ]


def times(count: int) -> tuple[tuple[torch.dtype, ...], ...]:
    return tuple((dtype,) * count for dtype in DTYPES)


@backends
@pytest.mark.parametrize(("call", "dtypes"), supported([*UNARY, *COMPOSITE_UNARY], times(1)))
def test_unary_functions(call: Call, dtypes: tuple[torch.dtype, ...], backend: str) -> None:
    check(call, backend, *samples(call, *dtypes))


@backends
@pytest.mark.parametrize(("call", "dtypes"), supported([*BINARY, *COMPOSITE_BINARY], times(2)))
def test_binary_functions(call: Call, dtypes: tuple[torch.dtype, ...], backend: str) -> None:
    check(call, backend, *samples(call, *dtypes))


@backends
@pytest.mark.parametrize(("call", "dtypes"), supported(TERNARY, times(3)))
def test_ternary_functions(call: Call, dtypes: tuple[torch.dtype, ...], backend: str) -> None:
    check(call, backend, *samples(call, *dtypes))


MIXED = (
    (torch.bfloat16, torch.float32),
    (torch.float16, torch.bfloat16),
    (torch.int32, torch.float16),
    (torch.bool, torch.int32),
    (torch.int64, torch.int32),
    (torch.uint8, torch.int8),
    (torch.bool, torch.bfloat16),
    (torch.float64, torch.float32),
)
TOTAL = [call for call in BINARY if call.domain == "any"]


@backends
@pytest.mark.parametrize(("call", "dtypes"), supported(TOTAL, MIXED))
def test_operands_of_two_types(call: Call, dtypes: tuple[torch.dtype, ...], backend: str) -> None:
    check(call, backend, *samples(call, *dtypes))


def test_every_row_of_the_table_is_called() -> None:
    called = {name for call in CALLS for name in call.names.split()}
    assert ROWS - called == NOT_ELEMENTWISE
