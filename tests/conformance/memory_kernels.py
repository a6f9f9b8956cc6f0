"""Atomics, and loads that must see what the same program stored before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.conformance.case import EXACT, Case, blocks, integers, randn


@helion.kernel
def atomic_at(
    target: torch.Tensor, index: torch.Tensor, value: torch.Tensor, apply: Callable[..., Any]
) -> tuple[torch.Tensor, torch.Tensor]:
    previous = torch.empty_like(value)
    for t in hl.tile(index.size(0)):
        previous[t] = apply(target, [index[t]], value[t])
    return target, previous


@helion.kernel
def histogram(index: torch.Tensor, weight: torch.Tensor, bins: hl.constexpr) -> torch.Tensor:
    out = weight.new_zeros([bins])
    for t in hl.tile(index.size(0)):
        hl.atomic_add(out, [index[t]], weight[t])
    return out


@helion.kernel
def largest_in_bin(index: torch.Tensor, value: torch.Tensor, bins: hl.constexpr) -> torch.Tensor:
    out = value.new_full([bins], -1000)
    for t in hl.tile(index.size(0)):
        hl.atomic_max(out, [index[t]], value[t])
    return out


@helion.kernel
def column_sums(x: torch.Tensor) -> torch.Tensor:
    out = torch.zeros([x.size(1)], dtype=torch.float32, device=x.device)
    for t, u in hl.tile(x.size()):
        hl.atomic_add(out, [u], x[t, u].to(torch.float32).sum(0))
    return out


@helion.kernel
def atomic_with_a_number(x: torch.Tensor) -> torch.Tensor:
    count = torch.zeros([1], dtype=torch.int32, device=x.device)
    for t in hl.tile(x.size(0)):
        hl.atomic_add(count, [0], (x[t] > 0).to(torch.int32).sum())
    return count


@helion.kernel
def store_then_load(x: torch.Tensor) -> torch.Tensor:
    m, n = x.shape
    scratch, out = torch.empty_like(x), torch.empty_like(x)
    for t in hl.tile(m):
        for u in hl.tile(n):
            scratch[t, u] = x[t, u] * 2
        for u in hl.tile(n):
            out[t, u] = scratch[t, u] + 1
    return out


@helion.kernel
def store_then_load_whole_rows(x: torch.Tensor) -> torch.Tensor:
    m, n = x.shape
    scratch, out = torch.empty_like(x), torch.empty_like(x)
    for t in hl.tile(m):
        scratch[t, :] = x[t, :] - x[t, :].amax(1, keepdim=True)
        for u in hl.tile(n):
            out[t, u] = scratch[t, u] * 3
    return out


@helion.kernel
def running_total_in_memory(x: torch.Tensor) -> torch.Tensor:
    m, n = x.shape
    total = torch.zeros([m], dtype=torch.float32, device=x.device)
    for t in hl.tile(m):
        for u in hl.tile(n):
            total[t] += x[t, u].sum(1)
    return total


@helion.kernel
def in_place(x: torch.Tensor) -> torch.Tensor:
    for t in hl.tile(x.size(0)):
        x[t] = x[t] * 2 + 1
        x[t] = x[t] * x[t]
    return x


def distinct(dtype: torch.dtype, fn: Callable[..., Any]) -> Callable[[], tuple[Any, ...]]:
    """Every element is hit at most once, so the previous values do not depend on the order."""

    def make() -> tuple[Any, ...]:
        target = integers(-8, 8, 17).to(dtype)
        index = torch.tensor([3, 0, 16, 1, 5, 2, 4, 11, 9, 8, 7])
        return target, index, integers(-8, 8, 11, seed=1).to(dtype), fn

    return make


def combined(fn: Callable[..., Any]) -> Callable[..., tuple[torch.Tensor, torch.Tensor]]:
    def reference(target: torch.Tensor, index: torch.Tensor, value: torch.Tensor, _: Any) -> Any:
        previous = target[index].clone()
        target[index] = fn(previous, value)
        return target, previous

    return reference


ATOMICS: tuple[tuple[Callable[..., Any], Callable[..., Any], tuple[torch.dtype, ...]], ...] = (
    (hl.atomic_add, torch.add, (torch.float32, torch.int32, torch.int64, torch.float64)),
    (hl.atomic_max, torch.maximum, (torch.float32, torch.int32, torch.int64)),
    (hl.atomic_min, torch.minimum, (torch.float32, torch.int32, torch.int64)),
    (hl.atomic_and, torch.bitwise_and, (torch.int32, torch.int64)),
    (hl.atomic_or, torch.bitwise_or, (torch.int32, torch.int64)),
    (hl.atomic_xor, torch.bitwise_xor, (torch.int32, torch.int64)),
    (hl.atomic_xchg, lambda old, new: new, (torch.int32, torch.int64, torch.float32)),
)
ATOMIC_CASES = tuple(
    Case(
        f"{fn.__name__}_{str(dtype).removeprefix('torch.')}",
        atomic_at,
        distinct(dtype, fn),
        combined(reference),
        blocks(4),
        EXACT,
        # The interpreter exchanges integers only.
        is_interpretable=not (fn is hl.atomic_xchg and dtype.is_floating_point),
    )
    for fn, reference, dtypes in ATOMICS
    for dtype in dtypes
)


def counted(index: torch.Tensor, weight: torch.Tensor, bins: int) -> torch.Tensor:
    return weight.new_zeros(bins).index_add(0, index, weight)


def peaks(index: torch.Tensor, value: torch.Tensor, bins: int) -> torch.Tensor:
    return value.new_full([bins], -1000).scatter_reduce(0, index, value, "amax")


# fmt: off
MEMORY = (
    *ATOMIC_CASES,
    Case("histogram", histogram, lambda: (integers(0, 3, 21), integers(-9, 9, 21, seed=1), 5),
         counted, blocks(8), EXACT),
    Case("histogram_fp32", histogram,
         lambda: (integers(0, 3, 21), randn(21), 5),
         lambda index, weight, bins: counted(index, weight.double(), bins), blocks(8), 21),
    Case("largest_in_bin", largest_in_bin, lambda: (integers(0, 3, 21), integers(-9, 9, 21), 5),
         peaks, blocks(8), EXACT),
    Case("column_sums", column_sums, lambda: (randn(13, 7),), lambda x: x.double().sum(0),
         blocks(4, 4), 13),
    Case("atomic_with_a_number", atomic_with_a_number, lambda: (randn(21),),
         lambda x: (x > 0).sum(0, keepdim=True).int(), blocks(8), EXACT),
    Case("store_then_load", store_then_load, lambda: (randn(5, 13),), lambda x: x * 2 + 1,
         blocks(4, 4, 8), EXACT),
    Case("store_then_load_whole_rows", store_then_load_whole_rows, lambda: (randn(5, 13),),
         lambda x: (x - x.amax(1, keepdim=True)) * 3, blocks(4, 4), EXACT),
    Case("running_total_in_memory", running_total_in_memory, lambda: (randn(5, 13),),
         lambda x: x.double().sum(1), blocks(4, 4), 13),
    Case("in_place", in_place, lambda: (randn(13),), lambda x: (x.double() * 2 + 1) ** 2,
         blocks(4), 2),
)
# fmt: on
