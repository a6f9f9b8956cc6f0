"""Loops that end early, skip turns or run down; numbers that change in them; helpers with loops."""

from __future__ import annotations

from typing import Any

import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.conformance.case import EXACT, Case, blocks, integers, randn


@helion.kernel
def decay_from_the_end(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        state = hl.zeros([t])
        for i in range(x.size(1) - 1, -1, -1):
            state = state * 0.5 + x[t, i]
            out[t, i] = state
    return out


@helion.kernel
def every_third_from_the_end(x: torch.Tensor) -> torch.Tensor:
    out = torch.zeros_like(x)
    for t in hl.tile(x.size(0)):
        for i in reversed(range(1, x.size(1), 3)):
            out[t, i] = x[t, i] + i
        for j in range(x.size(1), 0, -4):
            out[t, j - 1] = out[t, j - 1] - j
    return out


def thirds(x: torch.Tensor) -> torch.Tensor:
    out = torch.zeros_like(x)
    for i in reversed(range(1, x.size(1), 3)):
        out[:, i] = x[:, i] + i
    for j in range(x.size(1), 0, -4):
        out[:, j - 1] = out[:, j - 1] - j
    return out


@helion.kernel
def sums_from_the_end(x: torch.Tensor, first: int) -> torch.Tensor:
    out = torch.zeros_like(x)
    for t in hl.tile(x.size(0)):
        total = hl.zeros([t], dtype=x.dtype)
        for u in reversed(hl.tile(first, x.size(1))):
            part = x[t, u]
            total = total + part.sum(1)
            out[t, u] = total[:, None] - torch.cumsum(part, dim=1) + part
    return out


def suffix_sums(x: torch.Tensor, first: int) -> torch.Tensor:
    out = torch.zeros_like(x)
    out[:, first:] = x[:, first:].flip(1).cumsum(1).flip(1).to(x.dtype)
    return out


@helion.kernel
def first_negative(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    found = torch.empty([x.size(0)], dtype=torch.int32, device=x.device)
    sums = torch.empty([x.size(0)], dtype=x.dtype, device=x.device)
    for row in hl.grid(x.size(0)):
        where, total = -1, 0
        for i in range(x.size(1)):
            value = x[row, i]
            if value < 0:
                where = i
                break
            if value > 5:
                continue
            total = total + value
        found[row] = where
        sums[row] = total
    return found, sums


def scan_rows(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    found, sums = [], []
    for row in x.tolist():
        where, total = -1, 0
        for i, value in enumerate(row):
            if value < 0:
                where = i
                break
            if value <= 5:
                total += value
        found.append(where)
        sums.append(total)
    return torch.tensor(found, dtype=torch.int32), torch.tensor(sums, dtype=x.dtype)


@helion.kernel
def tiles_until_large(x: torch.Tensor, limit: int) -> torch.Tensor:
    out = torch.zeros_like(x)
    for row in hl.grid(x.size(0)):
        for t in hl.tile(x.size(1), block_size=4):
            if t.id == 1:
                continue
            out[row, t] = x[row, t] * 2
            if x[row, t].amax() > limit:
                break
    return out


def doubled_until_large(x: torch.Tensor, limit: int) -> torch.Tensor:
    out = torch.zeros_like(x)
    for row in range(x.size(0)):
        for number, begin in enumerate(range(0, x.size(1), 4)):
            if number == 1:
                continue
            part = x[row, begin : begin + 4]
            out[row, begin : begin + 4] = part * 2
            if part.max() > limit:
                break
    return out


@helion.kernel
def collatz_steps(x: torch.Tensor, most: int) -> torch.Tensor:
    out = torch.empty_like(x)
    for i in hl.grid(x.size(0)):
        value = x[i]
        steps = 0
        while value != 1:
            if steps >= most:
                steps = -1
                break
            if value % 2 == 0:
                value = value // 2
                steps += 1
                continue
            value = value * 3 + 1
            steps += 1
        out[i] = steps
    return out


def collatz(x: torch.Tensor, most: int) -> torch.Tensor:
    def steps_of(value: int) -> int:
        steps = 0
        while value != 1:
            if steps >= most:
                return -1
            value = value // 2 if value % 2 == 0 else value * 3 + 1
            steps += 1
        return steps

    return torch.tensor([steps_of(value) for value in x.tolist()], dtype=x.dtype)


@helion.kernel
def numbers_of_branches(x: torch.Tensor, flags: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for i in hl.grid(x.size(0)):
        scale, shift, is_low = 1.0, 0, False
        if flags[i] > 0:
            scale, shift = 0.1, 3
        else:
            is_low = True
        if is_low:
            shift = shift + 1
        out[i, :] = x[i, :] * scale + shift
    return out


def scaled_by_flags(x: torch.Tensor, flags: torch.Tensor) -> torch.Tensor:
    is_set = (flags > 0)[:, None]
    return torch.where(is_set, x.double() * 0.1 + 3, x.double() + 1)


@helion.kernel
def matched_modes(x: torch.Tensor, modes: torch.Tensor, kind: str) -> torch.Tensor:
    out = torch.empty_like(x)
    for i in hl.grid(x.size(0)):
        value = x[i, :]
        match kind:
            case "plain" | "none":
                shift = 0
            case "shifted":
                shift = 7
            case _:
                shift = torch.no_such_function(value)  # type: ignore[attr-defined]
        mode: Any = modes[i]
        match mode:  # pyright: ignore[reportMatchNotExhaustive]
            case 0:
                value = -value
            case 1 | 2:
                value = value * 2
            case other if other > 5:
                value = value + 100
        out[i, :] = value + shift
    return out


def matched(x: torch.Tensor, modes: torch.Tensor, kind: str) -> torch.Tensor:
    shift = 7 if kind == "shifted" else 0
    rows: list[torch.Tensor] = []
    for row, mode in zip(x, modes.tolist()):
        value = {0: -row, 1: row * 2, 2: row * 2}.get(mode, row + 100 if mode > 5 else row)
        rows.append(value + shift)
    return torch.stack(rows)


def sum_of_row(x: torch.Tensor, row: int, most: int) -> torch.Tensor:
    total = hl.zeros([], dtype=x.dtype)
    for t in hl.tile(x.size(1)):
        total = total + x[row, t].sum()
    count = 0
    for i in range(most):
        if i == 2:
            continue
        count += i
    return total + count


def clipped(value: torch.Tensor, low: int, high: int) -> torch.Tensor:
    if value < low:
        return value * 0 + low
    if value > high:
        return value * 0 + high
    for bound in (low, high):
        if bound == 0:
            return value + 1
    return value


@helion.kernel
def helpers_with_loops(x: torch.Tensor, most: int) -> torch.Tensor:
    out = torch.empty([x.size(0)], dtype=x.dtype, device=x.device)
    for row in hl.grid(x.size(0)):
        out[row] = clipped(sum_of_row(x, row, most), -5, 20)
    return out


def clipped_sums(x: torch.Tensor, most: int) -> torch.Tensor:
    count = sum(i for i in range(most) if i != 2)
    return (x.sum(1) + count).clamp(-5, 20).to(x.dtype)


@helion.kernel
def lists_of_columns(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        first, *others = [x[t, i] for i in range(4)]
        total = first
        for weight, other in zip(range(1, 4), others, strict=True):
            total = total + other * weight
        for i in range(4):
            out[t, i] = total * i
    return out


def weighted_columns(x: torch.Tensor) -> torch.Tensor:
    total = x[:, 0] + x[:, 1] + x[:, 2] * 2 + x[:, 3] * 3
    return total[:, None] * torch.arange(4, dtype=x.dtype)


def decayed(x: torch.Tensor) -> torch.Tensor:
    out, state = torch.empty_like(x, dtype=torch.float64), torch.zeros(x.size(0)).double()
    for i in reversed(range(x.size(1))):
        state = state * 0.5 + x[:, i].double()
        out[:, i] = state
    return out


# fmt: off
JUMPS: tuple[Case, ...] = (
    Case("decay_from_the_end", decay_from_the_end, lambda: (randn(5, 11),), decayed, blocks(4), 11),
    Case("decay_of_one", decay_from_the_end, lambda: (randn(3, 1),), decayed, blocks(2), 1),
    Case("every_third_from_the_end", every_third_from_the_end,
         lambda: (integers(-9, 9, 5, 11),), thirds, blocks(4), EXACT),
    Case("sums_from_the_end", sums_from_the_end, lambda: (integers(-9, 9, 5, 19), 0), suffix_sums,
         blocks(2, 8), EXACT),
    Case("sums_from_the_end_to_3", sums_from_the_end, lambda: (integers(-9, 9, 3, 17), 3),
         suffix_sums, blocks(2, 4), EXACT),
    Case("sums_of_nothing", sums_from_the_end, lambda: (integers(-9, 9, 3, 4), 4), suffix_sums,
         blocks(2, 4), EXACT),
    Case("first_negative", first_negative,
         lambda: (torch.cat((integers(-2, 9, 6, 7), integers(0, 9, 1, 7))),), scan_rows, blocks(),
         EXACT),
    Case("tiles_until_large", tiles_until_large, lambda: (integers(-9, 9, 5, 19), 6),
         doubled_until_large, blocks(), EXACT),
    Case("collatz_steps", collatz_steps, lambda: (integers(1, 40, 9), 30), collatz, blocks(),
         EXACT),
    Case("numbers_of_branches", numbers_of_branches,
         lambda: (randn(5, 3), torch.tensor([0, 1, 2, 0, 1])), scaled_by_flags, blocks(), 3),
    Case("matched_modes", matched_modes,
         lambda: (integers(-9, 9, 6, 3), torch.tensor([0, 1, 2, 3, 6, 0]), "none"), matched,
         blocks(), EXACT),
    Case("matched_modes_shifted", matched_modes,
         lambda: (integers(-9, 9, 6, 3), torch.tensor([2, 9, 5, 3, 6, 0]), "shifted"), matched,
         blocks(), EXACT),
    Case("helpers_with_loops", helpers_with_loops, lambda: (integers(-9, 9, 7, 5), 5), clipped_sums,
         blocks(4), EXACT),
    Case("lists_of_columns", lists_of_columns, lambda: (integers(-9, 9, 7, 4),), weighted_columns,
         blocks(4), EXACT),
)
# fmt: on
