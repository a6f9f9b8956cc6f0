"""Every elementwise torch function of the table against eager: element type, values, corners."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.frontend.torch_calls import BINARY, EXACT, TERNARY, UNARY, Call, sample
from tilesmith.frontend.activations import ACTIVATIONS
from tilesmith.frontend.elementwise import ELEMENTWISE
from tilesmith.numerics.ulp import ulp_distance, ulp_error

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.int32, torch.bool)
CONFIG = helion.Config(block_sizes=[8])
CALLS = [*UNARY, *BINARY, *TERNARY]


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


def run(call: Call, *tensors: torch.Tensor) -> torch.Tensor:
    """What a kernel makes of a call, in the element type device code gives it."""
    seen: list[torch.dtype] = []

    def fn(*tiles: Any) -> Any:
        result = call.fn(*tiles)
        seen.append(result.dtype)
        return result

    kernel = KERNELS[len(tensors)]
    # Storing converts: only a tensor of the very type keeps what was computed.
    kernel.bind((*tensors, torch.empty(len(tensors[0])), fn))
    out = torch.empty(len(tensors[0]), dtype=seen[0])
    bound = kernel.bind((*tensors, out, fn))
    bound.compile_config(CONFIG)(*tensors, out, fn)
    return out


def eager(call: Call, *tensors: torch.Tensor) -> torch.Tensor:
    try:
        return call.fn(*(tensor.clone() for tensor in tensors))
    except (RuntimeError, NotImplementedError, TypeError, ZeroDivisionError) as error:
        pytest.skip(f"not in eager: {error}")


def check(call: Call, *tensors: torch.Tensor) -> None:
    expected = eager(call, *tensors)
    result = run(call, *tensors)
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
    exact = call.fn(*(t.double() if t.is_floating_point() else t for t in tensors)).double()
    eager_error = ulp_error(expected[finite], exact[finite], expected.dtype)
    error = ulp_error(result[finite], exact[finite], expected.dtype)
    # Near eager, or no farther from the truth than a few roundings.
    bad = (distance > call.ulp) & (error > eager_error + call.ulp)
    assert not bad.any(), [t[finite][bad].tolist() for t in (*tensors, result, expected)]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("call", UNARY, ids=str)
def test_unary_functions(call: Call, dtype: torch.dtype) -> None:
    check(call, sample(dtype, call.domain, 0))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("call", BINARY, ids=str)
def test_binary_functions(call: Call, dtype: torch.dtype) -> None:
    check(call, sample(dtype, call.domain, 0), sample(dtype, call.domain, 1))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("call", TERNARY, ids=str)
def test_ternary_functions(call: Call, dtype: torch.dtype) -> None:
    check(call, *(sample(dtype, call.domain, seed) for seed in range(3)))


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


@pytest.mark.parametrize("dtypes", MIXED, ids=str)
@pytest.mark.parametrize("call", [call for call in BINARY if call.domain == "any"], ids=str)
def test_operands_of_two_types(call: Call, dtypes: tuple[torch.dtype, torch.dtype]) -> None:
    left, right = (sample(dtype, "shift", seed) for seed, dtype in enumerate(dtypes))
    length = min(len(left), len(right))
    check(call, left[:length], right[:length])


def test_every_row_of_the_table_is_called() -> None:
    called = {name for call in CALLS for name in call.names.split()}
    assert {*ELEMENTWISE, *ACTIVATIONS} - called == set()
