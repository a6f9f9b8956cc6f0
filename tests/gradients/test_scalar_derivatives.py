"""Every row of the table of derivatives against differences, in fp64."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.gradients.compare import derive, present
from tilesmith.gradients.tile_derivatives import SCALAR_DERIVATIVES
from tilesmith.ir.ops.elementwise import SCALAR_FUNCTIONS, ResultKind

CONSTANT = {"floor", "ceil", "round", "trunc", "floordiv", "truncdiv"}
"""Functions whose derivative is 0 wherever there is one."""
OF_INTEGERS = {"not", "and", "or", "xor", "shl", "shr", "mulhi"}


@helion.kernel(config=helion.Config(block_sizes=[4]))
def unary(x: torch.Tensor, function: Any) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = function(x[tile])
    return out


@helion.kernel(config=helion.Config(block_sizes=[4]))
def binary(x: torch.Tensor, y: torch.Tensor, function: Any) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = function(x[tile], y[tile])
    return out


MIDDLE = [-1.7, -0.9, -0.4, 0.3, 0.8, 1.6]
POSITIVE = [0.2, 0.7, 1.1, 1.9, 2.6]
WITHIN = [-0.8, -0.3, 0.2, 0.5, 0.9]
LARGE = [1.2, 1.7, 2.4, 3.9, 5.1]
UNARY: dict[str, tuple[Any, list[float]]] = {
    "neg": (torch.neg, MIDDLE), "abs": (torch.abs, MIDDLE), "sqrt": (torch.sqrt, POSITIVE),
    "rsqrt": (torch.rsqrt, POSITIVE), "exp": (torch.exp, MIDDLE), "exp2": (torch.exp2, MIDDLE),
    "expm1": (torch.expm1, MIDDLE), "log": (torch.log, POSITIVE), "log2": (torch.log2, POSITIVE),
    "log10": (torch.log10, POSITIVE), "log1p": (torch.log1p, POSITIVE), "sin": (torch.sin, MIDDLE),
    "cos": (torch.cos, MIDDLE), "tan": (torch.tan, WITHIN), "asin": (torch.asin, WITHIN),
    "acos": (torch.acos, WITHIN), "atan": (torch.atan, MIDDLE), "sinh": (torch.sinh, MIDDLE),
    "cosh": (torch.cosh, MIDDLE), "tanh": (torch.tanh, MIDDLE), "asinh": (torch.asinh, MIDDLE),
    "acosh": (torch.acosh, LARGE), "atanh": (torch.atanh, WITHIN), "erf": (torch.erf, MIDDLE),
    "erfc": (torch.erfc, MIDDLE), "sigmoid": (torch.sigmoid, MIDDLE),
}  # fmt: skip
FIRST, SECOND = [0.3, 1.7, 2.2, 0.6, 1.1], [1.2, 0.4, 0.9, 1.8, 0.5]
BINARY: dict[str, Any] = {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div, "mod": torch.remainder,
    "fmod": torch.fmod, "maximum": torch.maximum, "minimum": torch.minimum, "pow": torch.pow,
    "atan2": torch.atan2, "where": lambda x, y: torch.where(x < y, x * x, y * x),
}  # fmt: skip


def fp64(values: list[float]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


def test_every_function_has_a_row_or_no_derivative() -> None:
    floats = {name for name, row in SCALAR_FUNCTIONS.items() if row.result is ResultKind.SAME}
    assert set(SCALAR_DERIVATIVES) == floats - CONSTANT - OF_INTEGERS
    # No function of the language makes an fma: a pass does, after gradients are derived.
    assert {*UNARY, *BINARY, "fma"} == set(SCALAR_DERIVATIVES)


@pytest.mark.parametrize("name", UNARY)
def test_of_one_operand(name: str) -> None:
    function, values = UNARY[name]
    x = fp64(values)
    backward = derive(unary, (x, function))
    assert torch.autograd.gradcheck(lambda x: backward.call(x, function), (x,))


@pytest.mark.parametrize("name", BINARY)
def test_of_two_operands(name: str) -> None:
    function = BINARY[name]
    args = fp64(FIRST), fp64(SECOND)
    backward = derive(binary, (*args, function))
    assert torch.autograd.gradcheck(lambda x, y: backward.call(x, y, function), args)


@pytest.mark.parametrize("function", [torch.floor, torch.round, torch.ceil])
def test_steps_have_no_slope(function: Any) -> None:
    x = fp64(MIDDLE)
    backward = derive(unary, (x, function))
    (grad,) = backward.run((x, function), (torch.ones_like(x),))
    assert grad is None or not grad.any()


@pytest.mark.parametrize("function", [torch.maximum, torch.minimum])
def test_ties_are_shared_as_torch_does(function: Any) -> None:
    x, y = fp64([1.0, 2.0, 3.0]), fp64([1.0, 3.0, 2.0])
    backward = derive(binary, (x, y, function))
    ones = torch.ones(3, dtype=torch.float64)
    exact = torch.autograd.grad(function(x, y), (x, y), ones)
    for actual, wanted in zip(backward.run((x, y, function), (ones,)), exact):
        assert torch.equal(present(actual), wanted)


@pytest.mark.parametrize(
    "function", [torch.relu, lambda x: torch.clamp(x, min=1.0), lambda x: torch.clamp(x, max=1.0)]
)
def test_ties_with_numbers_are_decided_as_torch_does(function: Any) -> None:
    x = fp64([-1.0, 0.0, 1.0, 2.0])
    backward = derive(unary, (x, function))
    ones = torch.ones_like(x)
    (exact,) = torch.autograd.grad(function(x), x, ones)
    (found,) = backward.run((x, function), (ones,))
    assert torch.equal(present(found), exact)


def test_powers_at_zero() -> None:
    x, y = fp64([0.0, 0.0, 2.0]), fp64([2.0, 1.0, 0.0])
    backward = derive(binary, (x, y, torch.pow))
    ones = torch.ones_like(x)
    exact = torch.autograd.grad(torch.pow(x, y), (x, y), ones)
    for actual, wanted in zip(backward.run((x, y, torch.pow), (ones,)), exact):
        assert torch.allclose(present(actual), wanted, rtol=1e-14)
