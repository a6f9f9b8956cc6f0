"""Atomics of every kind: types, memory orders, values of every form, partial tiles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.conformance.case import EXACT, Case, blocks, integers


@helion.kernel
def swap_where_equal(
    target: torch.Tensor, expected: torch.Tensor, value: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    previous = torch.empty_like(target)
    for t in hl.tile(target.size(0)):
        previous[t] = hl.atomic_cas(target, [t], expected[t], value[t])
    return target, previous


@helion.kernel
def swap_in_a_window(x: torch.Tensor, n: int) -> torch.Tensor:
    # Only the first n elements may change: the last tile is partial, but memory goes on.
    for t in hl.tile(n):
        hl.atomic_cas(x, [t], 0, 7, sem="acq_rel")
    return x


@helion.kernel
def swap_first_come(x: torch.Tensor, slots: int) -> torch.Tensor:
    taken = torch.zeros([slots], dtype=torch.int32, device=x.device)
    wins = torch.zeros([slots], dtype=torch.int32, device=x.device)
    for t in hl.tile(x.size(0)):
        was = hl.atomic_cas(taken, [x[t]], 0, 1)
        hl.atomic_add(wins, [x[t]], torch.where(was == 0, 1, 0))
    return wins


@helion.kernel
def swap_in_a_matrix(x: torch.Tensor, pick: torch.Tensor) -> torch.Tensor:
    for t in hl.tile(pick.size(0)):
        hl.atomic_cas(x, [pick[t], slice(None)], 1, 9)
    return x


@helion.kernel
def every_order(x: torch.Tensor) -> torch.Tensor:
    for t in hl.tile(x.size(0)):
        hl.atomic_add(x, [t], 1, sem="relaxed")
        hl.atomic_add(x, [t], 2, sem="acquire")
        hl.atomic_add(x, [t], 4, sem="release")
        hl.atomic_add(x, [t], 8, sem="acq_rel")
    return x


@helion.kernel
def values_of_every_form(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    for t, u in hl.tile(x.size()):
        hl.atomic_add(x, [t, u], 2.9)
        hl.atomic_add(x, [t, u], True)
        hl.atomic_add(x, [t, u], y[u] + 0.5)
        hl.atomic_max(x, [t, u], y[u][None, :] - 100)
        hl.atomic_add(x, [t, u], t.begin * 0)
    return x


@helion.kernel
def places_of_every_form(x: torch.Tensor, row: torch.Tensor, n: int) -> torch.Tensor:
    for t in hl.tile(row.size(0), block_size=4):
        hl.atomic_add(x, [0, slice(None)], 1)
        hl.atomic_add(x, [-1, t], row[t])
        hl.atomic_add(x, [t.id + 1, n], 10)
        hl.atomic_add(x, [1, t.index], row[t])
        hl.atomic_add(x, [row[t.begin], 0], 100)
    return x


@helion.kernel
def bits_of_small_elements(
    target: torch.Tensor, index: torch.Tensor, value: torch.Tensor, apply: Callable[..., Any]
) -> tuple[torch.Tensor, torch.Tensor]:
    previous = torch.empty_like(value)
    for t in hl.tile(index.size(0)):
        previous[t] = apply(target, [index[t]], value[t])
    return target, previous


@helion.kernel
def flags(x: torch.Tensor, bins: hl.constexpr) -> torch.Tensor:
    out = torch.zeros([bins], dtype=torch.bool, device=x.device)
    for t in hl.tile(x.size(0)):
        hl.atomic_or(out, [x[t]], True)
    return out


@helion.kernel
def sums_under_a_lock(x: torch.Tensor, lock: torch.Tensor) -> torch.Tensor:
    totals = torch.zeros([2], dtype=x.dtype, device=x.device)
    for t in hl.tile(x.size(0)):
        while hl.atomic_cas(lock, [0], 0, 1, sem="acquire") != 0:
            pass
        totals[0] = totals[0] + x[t].sum()
        totals[1] = totals[1] + torch.ones_like(x[t]).sum()
        hl.atomic_xchg(lock, [0], 0, sem="release")
    return totals


@helion.kernel
def rows_under_locks(x: torch.Tensor, bins: torch.Tensor, locks: torch.Tensor) -> torch.Tensor:
    totals = torch.zeros([locks.size(0), x.size(1)], dtype=x.dtype, device=x.device)
    tries = torch.zeros_like(locks)
    for i in hl.grid(x.size(0)):
        b, waited = bins[i], 0
        while hl.atomic_cas(locks, [b], 0, 1, sem="acquire") != 0:
            waited = waited + 1
        tries[b] = tries[b] + waited * 0 + 1
        totals[b, :] = totals[b, :] + x[i, :]
        hl.atomic_xchg(locks, [b], 0, sem="release")
    return totals + tries[:, None]


@helion.kernel
def counts_under_a_lock_each(x: torch.Tensor, locks: torch.Tensor) -> torch.Tensor:
    counts = torch.zeros_like(x)
    for t in hl.tile(locks.size(0)):
        # A condition of a tile: its block size can be 1 only.
        while hl.atomic_cas(locks, [t], 0, 1, sem="acquire") != 0:
            pass
        if hl.atomic_add(locks, [t], 1) == 1:
            counts[t] = counts[t] + x[t]
        hl.atomic_xchg(locks, [t], 0, sem="release")
    return counts


def swapped(target: torch.Tensor, expected: torch.Tensor, value: torch.Tensor) -> Any:
    return torch.where(target == expected, value, target), target


def window(x: torch.Tensor, n: int) -> torch.Tensor:
    x[:n] = torch.where(x[:n] == 0, 7, x[:n])
    return x


def placed(x: torch.Tensor, row: torch.Tensor, n: int) -> torch.Tensor:
    for begin in range(0, row.size(0), 4):
        end = min(begin + 4, row.size(0))
        x[0, :] += 1
        x[-1, begin:end] += row[begin:end]
        x[begin // 4 + 1, n] += 10
        x[1, begin:end] += row[begin:end]
        x[row[begin], 0] += 100
    return x


def matrix_swapped(x: torch.Tensor, pick: torch.Tensor) -> torch.Tensor:
    x[pick] = torch.where(x[pick] == 1, 9, x[pick])
    return x


def small(dtype: torch.dtype, fn: Callable[..., Any]) -> Callable[[], tuple[Any, ...]]:
    def make() -> tuple[Any, ...]:
        target = integers(-100, 100, 19).to(dtype)
        index = torch.tensor([3, 0, 18, 1, 5, 2, 4, 11, 9, 8, 7])
        return target, index, (integers(-100, 100, 11, seed=1) % 3).to(dtype), fn

    return make


def combined(fn: Callable[..., Any]) -> Callable[..., Any]:
    def reference(target: torch.Tensor, index: torch.Tensor, value: torch.Tensor, _: Any) -> Any:
        previous = target[index].clone()
        target[index] = fn(previous, value)
        return target, previous

    return reference


def triples(dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    return tuple(integers(0, 3, 21, seed=seed).to(dtype) for seed in range(3))


BITS = {
    "and": (hl.atomic_and, torch.bitwise_and),
    "or": (hl.atomic_or, torch.bitwise_or),
    "xor": (hl.atomic_xor, torch.bitwise_xor),
}
SMALL = {"bool": torch.bool, "i8": torch.int8, "i16": torch.int16, "u8": torch.uint8}
NUMBERS = integers(-9, 9, 7)

# fmt: off
ATOMICS = (
    *(Case(f"swap_where_equal_{str(dtype)[6:]}", swap_where_equal,
           lambda dtype=dtype: triples(dtype), swapped, blocks(8), EXACT)
      for dtype in (torch.int32, torch.int64)),
    Case("swap_in_a_window", swap_in_a_window, lambda: (integers(0, 2, 29), 21), window, blocks(8),
         EXACT),
    Case("swap_first_come", swap_first_come, lambda: (integers(0, 9, 37), 9),
         lambda x, slots: torch.bincount(x, minlength=slots).clamp(max=1).int(), blocks(8),
         EXACT),
    Case("swap_in_a_matrix", swap_in_a_matrix,
         lambda: (integers(0, 3, 7, 5), torch.tensor([4, 0, 6])), matrix_swapped, blocks(2), EXACT),
    Case("every_order", every_order, lambda: (integers(0, 9, 21),), lambda x: x + 15, blocks(8),
         EXACT),
    Case("values_of_every_form", values_of_every_form,
         lambda: (integers(-9, 9, 5, 7), NUMBERS.to(torch.get_default_device())),
         lambda x, y: torch.maximum(x + 3 + (y + 0.5).to(torch.int64), y - 100), blocks(2, 4),
         EXACT),
    Case("places_of_every_form", places_of_every_form,
         lambda: (integers(-9, 9, 5, 7), torch.tensor([2, 1, 0, 3, 1, 4, 2]), 3), placed, blocks(),
         EXACT),
    *(Case(f"bits_{kind}_{name}", bits_of_small_elements, small(dtype, fn), combined(torch_fn),
           blocks(8), EXACT)
      for kind, (fn, torch_fn) in BITS.items() for name, dtype in SMALL.items()
      if name == "bool" or kind == "and"),
    *(Case(f"sums_under_a_lock_{size}", sums_under_a_lock,
           lambda: (integers(-9, 9, 50), integers(0, 1, 1).int()),
           lambda x, lock: torch.stack([x.sum(), x.new_tensor(len(x))]), blocks(size), EXACT)
      for size in (1, 8)),
    Case("counts_under_a_lock_each", counts_under_a_lock_each,
         lambda: (integers(-9, 9, 13), integers(0, 1, 13).int()), lambda x, locks: x, blocks(1),
         EXACT),
    Case("rows_under_locks", rows_under_locks,
         lambda: (integers(-9, 9, 40, 7), integers(0, 3, 40), integers(0, 1, 3).int()),
         lambda x, bins, locks: x.new_ones(3, 7).mul(torch.bincount(bins, minlength=3)[:, None])
         .index_add(0, bins, x), blocks(), EXACT),
    Case("flags", flags, lambda: (integers(0, 21, 13), 21),
         lambda x, bins: torch.bincount(x, minlength=bins) > 0, blocks(4), EXACT),
)
# fmt: on
