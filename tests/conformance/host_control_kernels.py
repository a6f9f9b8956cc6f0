"""Kernels of several launches: host branches, loops and statements around device loops."""

from __future__ import annotations

import contextlib
from typing import Any

import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.conformance.case import Case, blocks, randn

QUIET: Any = {"ignore_warnings": [helion.exc.TensorOperationInWrapper]}


@helion.kernel
def branches(x: torch.Tensor, flag: bool, y: torch.Tensor | None = None) -> torch.Tensor:
    out = torch.empty_like(x)
    n = x.size(0)
    if flag:
        for t in hl.tile(n):
            out[t] = x[t] * 2
    elif y is not None:
        for t in hl.tile(n):
            out[t] = x[t] * y[t]
    else:
        for t in hl.tile(n):
            out[t] = x[t] * 3
    return out


def branches_reference(x, flag, y=None):
    return x.double() * (2 if flag else 3 if y is None else y.double())


@helion.kernel
def branch_on_layout(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty(x.shape, dtype=x.dtype)
    if x.is_contiguous():
        flat = x.view(-1)
        result = out.view(-1)
        for t in hl.tile(flat.size(0)):
            result[t] = flat[t] + 1
        return out
    for t, u in hl.tile(x.size()):
        out[t, u] = x[t, u] - 1
    return out


@helion.kernel
def host_loop(x: torch.Tensor, steps: int, factor: float) -> torch.Tensor:
    out = x.clone()
    for i in range(steps):
        for t in hl.tile(x.size(0)):
            out[t] = out[t] * factor + i
    return out


def host_loop_reference(x, steps, factor):
    out = x.double()
    for i in range(steps):
        out = out * factor + i
    return out


@helion.kernel(**QUIET)
def statement_between(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = x[t, :] * 2
    total = out.sum(0)
    scale = 1.0 / x.size(0)
    for t in hl.tile(x.size(0)):
        out[t, :] = out[t, :] - total[:][None, :] * scale
    return out, total


def statement_between_reference(x):
    doubled = x.double() * 2
    return doubled - doubled.mean(0), doubled.sum(0)


@helion.kernel(**QUIET)
def until_small(x: torch.Tensor) -> torch.Tensor:
    value = x.clone()
    while value.abs().max() > 0.125:
        for t in hl.tile(value.size(0)):
            value[t] = value[t] * 0.5
    return value


def until_small_reference(x):
    value = x.double()
    while value.abs().max() > 0.125:
        value = value * 0.5
    return value


@helion.kernel
def with_and_try(x: torch.Tensor, row: int) -> torch.Tensor:
    out = torch.zeros_like(x)
    with torch.no_grad(), contextlib.suppress(IndexError):
        for t in hl.tile(x.size(0)):
            out[t] = x[t] + 1
    try:
        chosen = (x, out)[row]
    except IndexError:
        for t in hl.tile(x.size(0)):
            out[t] = out[t] * 2
    else:
        for t in hl.tile(x.size(0)):
            out[t] = out[t] - chosen[t]
    finally:
        for t in hl.tile(x.size(0)):
            out[t] = out[t] * 3
    return out


def with_and_try_reference(x, row):
    first = x.double() + 1
    return ((first * 2) if row > 1 else first - (x.double(), first)[row]) * 3


@helion.kernel
def swapped_buffers(x: torch.Tensor, steps: int) -> torch.Tensor:
    n = x.size(0)
    now, after = x.clone(), torch.empty_like(x)
    for step in range(2 * steps):
        if step % 2:
            continue
        for t in hl.tile(1, n - 1):
            after[t] = (now[t.index - 1] + now[t.index + 1]) * 0.5
        edge = (0, n - 1)
        for e in hl.grid(2):
            after[e * edge[1]] = now[e * edge[1]]
        now, after = after, now
        if step > 100:
            break
    return now


def swapped_buffers_reference(x, steps):
    now = x.double()
    for _ in range(steps):
        after = now.clone()
        after[1:-1] = (now[:-2] + now[2:]) * 0.5
        now = after
    return now


@helion.kernel
def barrier_in_a_branch(x: torch.Tensor, flag: bool) -> torch.Tensor:
    out = torch.empty_like(x)
    rest = torch.empty_like(x)
    if flag:
        for t in hl.tile(x.size(0)):
            rest[t] = x[t] + 1
        hl.barrier()
        for t in hl.tile(x.size(0)):
            out[t] = rest[x.size(0) - 1 - t.index]
    else:
        for t in hl.tile(x.size(0)):
            out[t] = x[t]
    return out


@helion.kernel
def list_of_shapes(xs: list[torch.Tensor]) -> torch.Tensor:
    out = torch.zeros([len(xs)], dtype=torch.float32)
    for i, x in enumerate(xs):
        for _ in hl.grid(1):
            acc = hl.zeros([], dtype=torch.float32)
            for u in hl.tile(x.size(0)):
                acc = acc + x[u].sum()
            out[i] = acc
    return out


@helion.kernel
def halving(x: torch.Tensor) -> torch.Tensor:
    value = x.clone()
    n = x.size(0)
    while n > 1:
        half = helion.cdiv(n, 2)
        upper = value[half:n]
        for t in hl.tile(upper.size(0)):
            value[t] = value[t] + upper[t]
        n = half
    return value[:1]


@helion.kernel
def chosen_by_match(x: torch.Tensor, mode: str) -> torch.Tensor:
    out = torch.empty_like(x)
    match mode:
        case "double":
            for t in hl.tile(x.size(0)):
                out[t] = x[t] * 2
        case "negate" | "minus":
            for t in hl.tile(x.size(0)):
                out[t] = -x[t]
        case _:
            out.fill_(1.0)
    return out


@helion.kernel(**QUIET)
def registered_block(x: torch.Tensor) -> torch.Tensor:
    n = x.size(0)
    block = hl.register_block_size(n)
    parts = torch.zeros([helion.cdiv(n, block)], dtype=torch.float32)
    for t in hl.tile(n, block_size=block):
        parts[t.id] = x[t].sum()
    total = parts.sum()
    out = torch.empty_like(x)
    for t in hl.tile(n):
        out[t] = x[t] - total[()]
    return out


@helion.kernel
def unrolled_turns(x: torch.Tensor, powers: hl.constexpr) -> torch.Tensor:
    out = torch.zeros_like(x)
    for count in range(1, powers + 1):
        for t in hl.tile(x.size(0)):
            term = x[t]
            for _ in hl.static_range(count - 1):
                term = term * x[t]
            out[t] = out[t] + term
    return out


@helion.kernel
def literal_turns(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.zeros_like(x)
    for source, factor in ((x, 2), (y, 3)):
        if factor == 3 and source.size(0) < 0:
            break
        for t in hl.tile(x.size(0)):
            out[t] = out[t] + source[t] * factor
    return out


STAGED = [
    Case("if_flag", branches, lambda: (randn(37), True), branches_reference, blocks(8, 16, 32)),
    Case(
        "if_given",
        branches,
        lambda: (randn(37), False, randn(37, seed=1)),
        branches_reference,
        blocks(8, 16, 32),
    ),
    Case("if_neither", branches, lambda: (randn(1), False), branches_reference, blocks(8, 16, 32)),
    Case("if_of_an_empty_tensor", branches, lambda: (randn(0), True), branches_reference,
         blocks(8, 16, 32)),
    Case("layout_dense", branch_on_layout, lambda: (randn(7, 5),), lambda x: x.double() + 1,
         blocks(8, 4, 2)),
    Case("layout_turned", branch_on_layout, lambda: (randn(7, 5).T,), lambda x: x.double() - 1,
         blocks(8, 4, 2)),
    Case("host_loop", host_loop, lambda: (randn(33), 4, 0.5), host_loop_reference, blocks(16)),
    Case("host_loop_of_no_turn", host_loop, lambda: (randn(33), 0, 0.5), host_loop_reference,
         blocks(16)),
    Case("between", statement_between, lambda: (randn(19, 5),), statement_between_reference,
         blocks(4, 8), reduction_length=19),
    Case("while_large", until_small, lambda: (randn(17),), until_small_reference, blocks(8)),
    Case("try_else", with_and_try, lambda: (randn(17), 1), with_and_try_reference,
         blocks(8, 4, 2, 16)),
    Case("try_except", with_and_try, lambda: (randn(17), 5), with_and_try_reference,
         blocks(8, 4, 2, 16)),
    Case("swapped", swapped_buffers, lambda: (randn(17), 3), swapped_buffers_reference, blocks(8),
         reduction_length=8),
    Case("barrier_taken", barrier_in_a_branch, lambda: (randn(37), True),
         lambda x, _: (x.double() + 1).flip(0),
         blocks(8, 16, 4, pid_type="persistent_blocked"), is_interpretable=False),
    Case("list_of_shapes", list_of_shapes, lambda: ([randn(5), randn(17, seed=1), randn(1)],),
         lambda xs: torch.stack([x.double().sum() for x in xs]), blocks(4), reduction_length=17),
    Case("halving", halving, lambda: (randn(37),), lambda x: x.double().sum(0, keepdim=True),
         blocks(8), reduction_length=37),
    Case("match", chosen_by_match, lambda: (randn(9), "minus"), lambda x, _: -x.double(),
         blocks(4, 4)),
    Case("match_without_launch", chosen_by_match, lambda: (randn(9), "ones"),
         lambda x, _: torch.ones_like(x.double()), blocks(4, 4)),
    Case("registered", registered_block, lambda: (randn(37),),
         lambda x: x.double() - x.double().sum(), blocks(8, 4), reduction_length=37),
    Case("unrolled_turns", unrolled_turns, lambda: (randn(9), 3),
         lambda x, n: sum(x.double() ** k for k in range(1, n + 1)), blocks(4),
         reduction_length=4),
    Case("literal_turns", literal_turns, lambda: (randn(9), randn(9, seed=1)),
         lambda x, y: x.double() * 2 + y.double() * 3, blocks(4), reduction_length=2),
]  # fmt: skip
"""Kernels that are more than one launch, or none."""
