"""Calls of every torch function in the table, and inputs that reach its corners."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

EXACT = 0
"""Same bits as eager."""


@dataclass(frozen=True)
class Call:
    """A function of tensors.

    ``names`` are the rows of the table it goes through; ``ulp`` is how far from eager the result
    may be in the result's type: 0 for functions that are rounded exactly.
    """

    names: str
    fn: Callable[..., Any]
    ulp: int = EXACT
    domain: str = "any"
    variant: str = ""

    def __str__(self) -> str:
        return f"{self.names.split()[0]}{'-' if self.variant else ''}{self.variant}"


def all_of(names: str, ulp: int = EXACT, domain: str = "any") -> list[Call]:
    return [Call(name, getattr(torch, name), ulp, domain) for name in names.split()]


def _methods(names: str, domain: str = "any") -> list[Call]:
    def method(name: str) -> Callable[..., Any]:
        return lambda x: getattr(x, name)()

    return [Call(name, method(name), EXACT, domain) for name in names.split()]


# The interpreter applies torch's own functions, but to other lanes at a time: vectorised and
# scalar code of torch differ in the last bit.
UNARY = [
    *all_of("neg negative abs absolute floor ceil round trunc sign square isnan isinf isfinite"),
    *all_of("logical_not bitwise_not clone detach relu relu_"),
    *_methods("contiguous"),
    *all_of("exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal sigmoid", 1),
    *all_of("sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc", 1),
    *_methods("float half bfloat16 double int long short char byte bool", "small"),
    Call("to", lambda x: x.to(torch.float16)),
    Call("to", lambda x: x.to(dtype=torch.float64), variant="keyword"),
    Call("type", lambda x: x.type(torch.float32)),
    # Eager's vectorised erf makes gelu(inf) NaN on some CPUs.
    Call("gelu", functional.gelu, 4, "finite"),
    Call("gelu", lambda x: functional.gelu(x, approximate="tanh"), 4, variant="tanh"),
    Call("silu", functional.silu, 2),
    Call("softplus", functional.softplus, 2),
    Call("softplus", lambda x: functional.softplus(x, beta=2.5, threshold=3), 2, variant="beta"),
    Call("logsigmoid log_sigmoid", functional.logsigmoid, 2),
    Call("leaky_relu", functional.leaky_relu),
    Call("leaky_relu", lambda x: functional.leaky_relu(x, 0.2), variant="slope"),
    Call("elu", functional.elu, 1),
    Call("elu", lambda x: functional.elu(x, alpha=0.3), 1, variant="alpha"),
    Call("mish", functional.mish, 4),
    Call("hardtanh", functional.hardtanh),
    Call("hardtanh", lambda x: functional.hardtanh(x, -2.0, 0.5), variant="range"),
    Call("relu6", functional.relu6),
    Call("relu", lambda x: functional.relu(x, inplace=False), variant="functional"),
    Call("threshold _threshold", lambda x: functional.threshold(x, 0.25, -3.0)),
    Call("clamp", lambda x: torch.clamp(x, -1, 1)),
    Call("clamp", lambda x: x.clamp(min=-0.5), variant="min"),
    Call("clip", lambda x: torch.clip(x, max=0.5)),
    Call("clamp_min", lambda x: torch.clamp_min(x, 0)),
    Call("clamp_max", lambda x: torch.clamp_max(x, 0.75)),
    Call("masked_fill", lambda x: x.masked_fill(x > 0, 3)),
    Call("where", lambda x: torch.where(x > 0, x, 2)),
    Call("where", lambda x: torch.where(x > 0, 1.5, x), variant="left"),
    Call("where", lambda x: torch.where(x != 0, 1, 0), variant="ints"),
    Call("where", lambda x: torch.where(x != 0, 1.0, 0.0), variant="floats"),
    Call("rsub", lambda x: torch.rsub(x, 2)),
    Call("rsub", lambda x: torch.rsub(x, 2, alpha=3), variant="alpha"),
    Call("add", lambda x: x + 1, variant="number"),
    Call("add", lambda x: 0.1 + x, variant="float"),
    Call("add", lambda x: x + True, variant="bool"),
    Call("add", lambda x: torch.add(x, 3, alpha=2), variant="alpha"),
    Call("sub", lambda x: 1 - x, variant="number"),
    Call("mul", lambda x: x * 0.1, variant="float"),
    Call("div", lambda x: x / 3, variant="number"),
    Call("div", lambda x: 3 / x, 1, variant="reflected"),
    Call("floor_divide", lambda x: x // 3, variant="number"),
    Call("floor_divide", lambda x: x // -3, variant="negative"),
    Call("remainder", lambda x: x % 3, variant="number"),
    Call("remainder", lambda x: x % -3, variant="negative"),
    Call("pow", lambda x: x**2, 1, "small", "2"),
    Call("pow", lambda x: x**3, 1, "small", "3"),
    Call("pow", lambda x: x**0, 1, "small", "0"),
    Call("pow", lambda x: x**5, 1, "small", "5"),
    Call("pow", lambda x: x**0.5, 1, "small", "half"),
    Call("pow", lambda x: x**2.0, 1, "small", "2.0"),
    Call("pow", lambda x: x**-1.0, 1, "small", "inverse"),
    Call("pow", lambda x: 2**x, 1, "small", "of_2"),
    Call("pow", lambda x: 1.5**x, 1, "small", "of_1.5"),
    Call("bitwise_and", lambda x: x & 6, variant="number"),
    Call("bitwise_left_shift", lambda x: x << 2, variant="number"),
    Call("bitwise_right_shift", lambda x: x >> 1, variant="number"),
    Call("eq", lambda x: x == 1, variant="number"),
    Call("lt", lambda x: x < 0.5, variant="number"),
    Call("le", lambda x: operator.ge(1, x), variant="reflected"),
]
BINARY = [
    *all_of("add sub subtract mul multiply maximum minimum eq ne lt le gt ge"),
    *all_of("div divide true_divide"),
    *all_of("logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor"),
    *all_of("bitwise_left_shift bitwise_right_shift", domain="shift"),
    *all_of("floor_divide remainder fmod", domain="divisor"),
    *all_of("atan2 hypot", 1),
    *all_of("pow", 1, "small"),
    Call("div", lambda x, y: torch.div(x, y, rounding_mode="floor"), 0, "divisor", "floor"),
    Call("div", lambda x, y: torch.div(x, y, rounding_mode="trunc"), 0, "divisor", "trunc"),
    Call("add", lambda x, y: torch.add(x, y, alpha=3), variant="alpha"),
    Call("sub", lambda x, y: torch.sub(x, y, alpha=2), variant="alpha"),
    Call("where", lambda x, y: torch.where(x > y, x, y)),
    Call("clamp", lambda x, y: torch.clamp(x, max=y), variant="tensor"),
    Call("type_as", lambda x, y: x.type_as(y)),
    Call("to", lambda x, y: x.to(y), variant="other"),
    Call("max", torch.max, variant="pair"),
    Call("min", torch.min, variant="pair"),
]
TERNARY = [
    Call("lerp", torch.lerp, 2),
    Call("addcmul", torch.addcmul, 2),
    Call("addcmul", lambda x, y, z: torch.addcmul(x, y, z, value=0.5), 2, variant="value"),
    Call("addcdiv", torch.addcdiv, 2),
    Call("addcdiv", lambda x, y, z: torch.addcdiv(x, y, z, value=-2), 2, variant="value"),
    Call("where", lambda x, y, z: torch.where(x != 0, y, z)),
]

FLOATS = (
    0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, -1.5, 2.5, -2.5, 3.0, -3.0, 7.0, -7.0, 20.5, -20.5,
    float("inf"), float("-inf"), float("nan"), 1e-5, -1e-5, 100.0, -100.0, 0.25, 6.5,
)  # fmt: skip
SMALL_FLOATS = tuple(value for value in FLOATS if abs(value) < 8)
INTEGERS = (0, 1, -1, 2, -2, 3, -3, 5, -5, 7, -7, 100, -100, 2**31 - 1, -(2**31))


def sample(dtype: torch.dtype, domain: str, seed: int) -> torch.Tensor:
    """Corner values, then random ones; paired with another seed, corners meet corners."""
    corners = _corners(dtype, domain, seed)
    generator = torch.Generator().manual_seed(seed)
    order = (
        torch.randperm(len(corners), generator=generator) if seed else torch.arange(len(corners))
    )
    return corners[order].to(dtype)


def _corners(dtype: torch.dtype, domain: str, seed: int) -> torch.Tensor:
    if dtype == torch.bool:
        return torch.tensor([True, False] * 13)
    if dtype.is_floating_point:
        values = SMALL_FLOATS if domain == "small" else FLOATS
        if domain == "finite":
            values = tuple(value for value in values if not math.isinf(value))
        if domain == "divisor" and seed:
            values = tuple(value or 2.0 for value in values)
        return torch.tensor(values, dtype=torch.float64)
    limit = 8 if domain in ("small", "shift") else 2**40
    integers = [value for value in INTEGERS if abs(value) <= limit]
    if domain == "divisor" and seed:
        integers = [value for value in integers if value not in (0, -1)]
        integers += [4, -4]
    if domain == "shift" and seed:
        integers = [abs(value) for value in integers]
    return torch.tensor(integers)


def eager(fn: Callable[..., Any], *tensors: torch.Tensor) -> torch.Tensor | None:
    """What torch itself gives; None for element types that it does not take."""
    try:
        return fn(*(tensor.clone() for tensor in tensors))
    except (RuntimeError, NotImplementedError, TypeError, IndexError):
        return None
