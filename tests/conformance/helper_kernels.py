"""Helper functions as users write them, and values that share where they start from."""

from __future__ import annotations

import math
from collections.abc import Callable
from math import sqrt
from typing import Any

import torch
from torch._higher_order_ops import associative_scan

import tilesmith as helion
import tilesmith.language as hl
from tests.conformance.case import EXACT, Case, blocks, randn


def numbers(v: Any, f: float, n: int) -> Any:
    """Python's own functions on numbers that are known at run time only."""
    whole = 1 if isinstance(1, int) else 1000
    return v * math.sqrt(f) + sqrt(f) + min(n, 4) + max([n, 5]) + int(f) + float(n) + whole


TABLE: dict[str, Callable[..., Any]] = {"scaled": lambda v, f: v * math.exp(f)}


def nested(depth: int, v: Any, f: float, by: Callable[..., Any] = TABLE["scaled"]) -> Any:
    """Calls itself, what its default is, and what a table of the module holds."""
    if depth:
        return nested(depth - 1, v + depth, f)
    return by(v, f) + TABLE["scaled"](v, f)


@helion.kernel
def helpers_on_numbers(x: torch.Tensor, f: float, n: int) -> torch.Tensor:
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = numbers(x[t], f, n) + nested(2, x[t], f)
    return out


def _on_numbers(x: torch.Tensor, f: float, n: int) -> torch.Tensor:
    x = x.double()
    root = x * math.sqrt(f) + math.sqrt(f) + min(n, 4) + max(n, 5) + int(f) + n + 1
    return root + 2 * math.exp(f) * (x + 3)


def plus_half_product(a: Any, b: Any) -> Any:
    """Associative, as a device that scans in parallel asks for: 1 + c/2 is the product of both."""
    return a + b + a * b * 0.5


def scanned(v: Any, scan: Callable[..., Any]) -> Any:
    """Torch's scan by three names."""
    deep = torch._higher_order_ops.associative_scan(plus_half_product, v, 1)  # type: ignore[attr-defined]
    return deep + associative_scan(plus_half_product, v, 1) + scan(plus_half_product, v, 1)


@helion.kernel
def scans_in_a_helper(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t, :] = scanned(x[t, :], associative_scan)
    return out


def _scanned(x: torch.Tensor) -> torch.Tensor:
    return ((1 + x.double() / 2).cumprod(1) - 1) * 2 * 3


@helion.kernel
def carried_from_one_value(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Carried values with one beginning must not share a variable in generated code."""
    first, second = torch.empty_like(x), torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        a = x[t]
        b = a
        c = a * 2
        for i in hl.grid(3):
            a, b = b, a
            b += 1
            if i == 1:
                a, c = c, a
            else:
                c = c - 1
        first[t] = a
        second[t] = b * 4 + c
    return first, second


def _from_one(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    a, b, c = x, x, x * 2
    for i in range(3):
        a, b = b, a
        b = b + 1
        a, c = (c, a) if i == 1 else (a, c - 1)
    return a, b * 4 + c


@helion.kernel
def named_like_a_launch_option(x: torch.Tensor, num_warps: int, num_stages: float) -> torch.Tensor:
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = x[t] * num_warps + num_stages
    return out


@helion.kernel
def one_range_in_a_list(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The variable is the tile itself, and a sequence of one."""
    rows, sums = torch.empty_like(x), x.new_empty([x.size(0)])
    for t in hl.tile([x.size(0)]):
        rows[t, :] = x[t, :] + hl.zeros([t, 7]) + len(t)
    for (u,) in hl.tile([x.size(0)]):
        sums[u] = x[u, 0] + u.begin * 0
    return rows, sums


@helion.kernel
def functions_of_host_code(x: torch.Tensor, f: float, n: int) -> torch.Tensor:
    """Functions made on the host hold arguments, sizes, tensors and each other."""
    out = torch.empty_like(x)
    rows, pair = x.size(0), (f, n)
    scaled = lambda v: v * f + x.size(0)  # noqa: E731

    def combined(v: Any, more: Any = pair, *, less: int = n) -> Any:
        return scaled(v) * n + rows + more[0] * more[1] - less

    for t in hl.tile(x.size(0)):
        out[t] = scaled(x[t]) + combined(x[t])
    return out


def _functions_of_host_code(x: torch.Tensor, f: float, n: int) -> torch.Tensor:
    scaled = x.double() * f + x.size(0)
    return scaled + scaled * n + x.size(0) + f * n - n


HELPERS: tuple[Case, ...] = (
    Case("functions of host code", functions_of_host_code, lambda: (randn(37), 1.5, 3),
         _functions_of_host_code, blocks(8), 8),
    Case("helpers on numbers", helpers_on_numbers, lambda: (randn(37), 1.5, 3), _on_numbers,
         blocks(8), 8),
    Case("scans in a helper", scans_in_a_helper, lambda: (randn(13, 7),), _scanned, blocks(4), 7),
    Case("carried from one value", carried_from_one_value, lambda: (randn(37).round(),), _from_one,
         blocks(8), EXACT),
    Case("named like a launch option", named_like_a_launch_option, lambda: (randn(37), 2, 0.5),
         lambda x, n, f: x * n + f, blocks(8), EXACT),
    Case("one range in a list", one_range_in_a_list, lambda: (randn(13, 7),),
         lambda x: (x + 1, x[:, 0]), blocks(4, 8), EXACT, needs_static_shapes=True),
)  # fmt: skip
