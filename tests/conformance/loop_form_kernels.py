"""Forms of loops and of what stands in them: bounds, steps, block sizes, unrolling, builtins."""

from __future__ import annotations

import math

import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.conformance.case import EXACT, Case, blocks, randn
from tilesmith.autotuner import PowerOfTwoFragment


@helion.kernel
def block_size_expression(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    block = hl.register_block_size(4, 16)
    for t in hl.tile(x.size(0), block_size=block * 2):
        out[t] = x[t] + t.block_size
    return out


@helion.kernel
def one_block_size_for_all(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for t, u in hl.tile(x.size(), block_size=4):
        out[t, u] = x[t, u] + t.block_size * u.block_size
    return out


@helion.kernel
def block_size_argument(x: torch.Tensor, size: int) -> torch.Tensor:
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0), None, size):
        out[t] = x[t] + t.block_size
    return out


@helion.kernel
def block_sizes_with_none(x: torch.Tensor) -> torch.Tensor:
    out = torch.zeros_like(x)
    for t, u in hl.tile([1, 2], [x.size(0), x.size(1)], block_size=[None, 4]):
        out[t, u] = x[t, u]
    return out


@helion.kernel
def split_by_a_tunable(x: torch.Tensor) -> torch.Tensor:
    splits = hl.register_tunable("splits", PowerOfTwoFragment(1, 16))
    size = helion.next_power_of_2(helion.cdiv(x.size(0), splits))
    out = torch.empty_like(x)
    for part in hl.tile(x.size(0), block_size=size):
        for t in hl.tile(part.begin, part.end):
            out[t] = x[t] + 1
    return out


@helion.kernel
def grid_with_steps(x: torch.Tensor, step: int) -> torch.Tensor:
    out = torch.zeros_like(x)
    for i, j in hl.grid([0, 1], [x.size(0), x.size(1)], [step, 2]):
        out[i, j] = x[i, j] + i
    return out


@helion.kernel
def positions_from_a_runtime_begin(x: torch.Tensor, first: int) -> torch.Tensor:
    out = torch.zeros([8, 4], dtype=torch.int64, device=x.device)
    for t in hl.tile(first, x.size(0), block_size=8):
        row = (t.begin - first) // 8
        out[row, 0] = t.begin
        out[row, 1] = t.end
        out[row, 2] = t.id
        out[row, 3] = t.count
    return out


@helion.kernel
def host_loop_written_out(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    a, b = torch.empty_like(x), torch.empty_like(y)
    for target, source, factor in ((a, x, 2.0), (b, y.flip(0), 3.0)):
        for t in hl.tile(x.size(0)):
            target[t] = source[t] * factor
    return a, b


@helion.kernel
def updated_in_place(x: torch.Tensor, turns: int) -> torch.Tensor:
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        a = x[t]
        b = a
        for _ in range(turns):
            a.add_(1).mul_(2)
        out[t] = a - b
    return out


@helion.kernel
def builtins_on_runtime_numbers(x: torch.Tensor, n: int, f: float) -> torch.Tensor:
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        quotient, rest = divmod(n, 3)
        whole = math.floor(f) + 10 * math.ceil(f) + 100 * round(f) + 1000 * abs(n)
        out[t] = x[t] + quotient + rest + whole + max(n, 2) + min(n, 2) + int(f)
    return out


@helion.kernel
def math_of_runtime_numbers(x: torch.Tensor, f: float) -> torch.Tensor:
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = x[t] * math.exp(-f) + math.sqrt(f) + math.log(f) + math.pi
    return out


def _positions(x: torch.Tensor, first: int) -> torch.Tensor:
    n = x.size(0)
    begins = range(first, n, 8)
    rows = [[b, min(b + 8, n), b // 8, len(begins)] for b in begins]
    return torch.tensor(rows + [[0] * 4] * (8 - len(rows)))


def _inner(x: torch.Tensor) -> torch.Tensor:
    out = torch.zeros_like(x)
    out[1:, 2:] = x[1:, 2:]
    return out


def _stepped(x: torch.Tensor, step: int) -> torch.Tensor:
    out = torch.zeros_like(x)
    rows = torch.arange(0, x.size(0), step)
    out[::step, 1::2] = x[::step, 1::2] + rows[:, None]
    return out


def _in_place(x: torch.Tensor, turns: int) -> torch.Tensor:
    a = x.clone()
    for _ in range(turns):
        a = (a + 1) * 2
    return a - x


def whole(n: int) -> torch.Tensor:
    """Small integers, exact in every order of additions."""
    return torch.arange(n, dtype=torch.float32)


# The stand-in for libdevice under the interpreter takes tiles, not plain scalars.
LOOP_FORMS: tuple[Case, ...] = (
    Case(
        "block size expression", block_size_expression, lambda: (whole(37),), lambda x: x + 8,
        blocks(4), EXACT, varies_with_blocks=True, is_shaped_by_config=True,
    ),
    Case(
        "block size argument", block_size_argument, lambda: (whole(37), 8),
        lambda x, size: x + size, helion.Config(), EXACT,
    ),
    Case(
        "block sizes with none", block_sizes_with_none, lambda: (randn(7, 11),), _inner,
        blocks(2), EXACT,
    ),
    Case(
        "one block size for all", one_block_size_for_all, lambda: (randn(7, 5),),
        lambda x: x + 16, blocks(), EXACT,
    ),
    Case(
        "split by a tunable", split_by_a_tunable, lambda: (randn(37),), lambda x: x + 1,
        blocks(4, splits=4), EXACT,
    ),
    Case(
        "grid with steps", grid_with_steps, lambda: (randn(7, 11), 3), _stepped,
        helion.Config(), EXACT,
    ),
    Case(
        "positions from a runtime begin", positions_from_a_runtime_begin,
        lambda: (randn(37), 5), _positions, helion.Config(), EXACT,
    ),
    Case(
        "host loop written out", host_loop_written_out, lambda: (randn(37), randn(37, seed=1)),
        lambda x, y: (x * 2, y.flip(0) * 3), blocks(8, 16), EXACT,
    ),
    Case(
        "updated in place", updated_in_place, lambda: (whole(37), 3), _in_place, blocks(8), EXACT,
    ),
    Case(
        "builtins on runtime numbers", builtins_on_runtime_numbers, lambda: (whole(37), 7, 2.75),
        lambda x, n, f: x + 2 + 1 + (2 + 30 + 300 + 7000) + 7 + 2 + 2, blocks(8), EXACT,
    ),
    Case(
        "math of runtime numbers", math_of_runtime_numbers, lambda: (randn(37), 0.75),
        lambda x, f: x.double() * math.exp(-f) + math.sqrt(f) + math.log(f) + math.pi,
        blocks(8), 4,
    ),
)  # fmt: skip
