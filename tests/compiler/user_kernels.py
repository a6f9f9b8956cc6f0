"""Kernels whose host code needs something of the module they stand in."""

from __future__ import annotations

import math
import math as mathematics
from typing import Any

import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith import cdiv
from tilesmith.autotuner import EnumFragment, PowerOfTwoFragment

SCALE = 0.5
LIMIT = math.inf
KIND = torch.float32
SHAPE = (13, 2)
NOTHING = None
TABLE = torch.arange(13, dtype=torch.float32)


def from_table(value: Any, t: Any) -> Any:
    return value + TABLE[t]


@helion.kernel
def reads_constants(x, limit=LIMIT, kind: Any = KIND):
    """Adds what the module says."""
    rows: int = SHAPE[0]
    out = torch.empty([rows], dtype=KIND, device=x.device)
    factor = mathematics.floor(SCALE * 5) if NOTHING is None else 0
    for t in hl.tile(rows):
        out[t] = x[t] * factor
    return out.clamp(max=limit).to(kind)


@helion.kernel
def reads_a_global_tensor(x):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = x[t] + TABLE[t]
    return out


@helion.kernel
def reads_a_global_tensor_in_a_helper(x):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = from_table(x[t], t)
    return out


@helion.kernel
def launch(x):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = x[t] + 1
    return out


@helion.kernel
def names_a_variable_launch(x):
    launch = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        launch[t] = x[t] + 1
    return launch


@helion.kernel
def uses_the_language_on_the_host(x, n: hl.constexpr = 3):  # type: ignore[assignment]
    block = hl.register_block_size(4, 64)
    parts = hl.register_tunable("parts", PowerOfTwoFragment(1, 8, 2))
    factor = hl.register_tunable("factor", EnumFragment((1.5, 2.5)))
    count = hl.specialize(x.size(0))
    rounded = helion.next_power_of_2(cdiv(count, block)) * parts * hl.constexpr(n)  # pyright: ignore[reportCallIssue]
    out = torch.zeros([rounded], device=x.device)
    for t in hl.tile(count, block_size=block):
        out[t.id] = x[t].sum(0) * factor
    return out


@helion.kernel
def takes_numbers(x, alpha: float, weights: list[float]):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = x[t] * alpha + weights[1]
    return out


@helion.kernel(static_shapes=False)
def product_of_any_size(x, y, finish=lambda acc: acc):
    m, k = x.size()
    n = y.size(1)
    out = torch.empty([m, n], dtype=x.dtype, device=x.device)
    for t, u in hl.tile([m, n]):
        acc = hl.zeros([t, u], dtype=torch.float32)
        for v in hl.tile(k):
            acc = torch.addmm(acc, x[t, v], y[v, u])
        out[t, u] = finish(acc)
    return out


@helion.kernel(static_shapes=False)
def softmax_of_any_size(x):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t, :] = torch.softmax(x[t, :], 1)
    return out
