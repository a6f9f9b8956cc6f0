"""Branches and loops: static, per config and dynamic; data-dependent bounds; positions of tiles."""

from __future__ import annotations

import math

import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.conformance.case import EXACT, Case, blocks, integers, randn


@helion.kernel
def optional_bias(x: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    out = torch.empty_like(x)
    for t, u in hl.tile(x.size()):
        value = x[t, u]
        if bias is not None:
            value = value + bias[u]
        out[t, u] = value
    return out


@helion.kernel
def named_mode(x: torch.Tensor, mode: hl.constexpr) -> torch.Tensor:
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        if mode == "double":
            out[t] = x[t] * 2
        elif mode == "square":
            out[t] = x[t] * x[t]
        else:
            out[t] = torch.no_such_function(x[t])  # type: ignore[attr-defined]
    return out


@helion.kernel
def branch_on_block_size(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    block = hl.register_block_size(x.size(0))
    for t in hl.tile(x.size(0), block_size=block):
        if hl.constexpr(block < 8):  # pyright: ignore[reportCallIssue]
            out[t] = x[t] + 1
        else:
            out[t] = x[t] - 1
    return out


@helion.kernel
def static_operand_decides(
    x: torch.Tensor, ref: torch.Tensor | None = None, beta: float = 1.0
) -> torch.Tensor:
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        value = x[t]
        if ref is not None and beta != 0.0:
            value = value + ref[t] * beta
        if beta != 0.0 and ref is not None:
            value = value + ref[t]
        out[t] = value
    return out


@helion.kernel
def dynamic_branch(x: torch.Tensor, flags: torch.Tensor, limit: int) -> torch.Tensor:
    out = torch.empty_like(x)
    for i in hl.grid(x.size(0)):
        value = x[i, :]
        scale = hl.full([], 1.0)
        if flags[i] > 0:
            value = value * 2
            scale = scale + 1
        elif i < limit:
            value = -value
        out[i, :] = value * scale
    return out


@helion.kernel
def effect_of_the_taken_branch(x: torch.Tensor, flags: torch.Tensor) -> torch.Tensor:
    out = torch.zeros_like(x)
    for i in hl.grid(x.size(0)):
        if flags[i] > 0 and i > 1:
            out[i] = x[i]
    return out


@helion.kernel
def halve_until_small(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    out = torch.empty_like(x)
    halvings = torch.empty([x.size(0)], dtype=torch.int32, device=x.device)
    for i in hl.grid(x.size(0)):
        step = hl.zeros([], dtype=torch.int32)
        v = x[i, :]
        while v.abs().amax() > 1.0:
            v = v * 0.5
            step = step + 1
        halvings[i] = step
        out[i, :] = v
    return out, halvings


@helion.kernel
def powers(x: torch.Tensor, exponents: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        # The first value that the loop carries is none that its condition reads.
        result = torch.ones_like(x[t])
        base, left = x[t], exponents[t]
        while (left > 0).any():
            result = torch.where((left & 1) == 1, result * base, result)
            base, left = base * base, left >> 1
        out[t] = result
    return out


@helion.kernel
def ragged_sums(values: torch.Tensor, starts: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    out = values.new_empty([starts.size(0)])
    for i in hl.grid(starts.size(0)):
        acc = hl.zeros([], dtype=torch.float32)
        for t in hl.tile(starts[i], ends[i]):
            acc = acc + values[t].sum()
        out[i] = acc
    return out


@helion.kernel
def bound_in_a_tensor(x: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
    out = torch.zeros_like(x)
    for i in hl.grid(x.size(0)):
        for t in hl.tile(count[i]):
            out[i, t] = x[i, t] + 1
    return out


@helion.kernel
def loop_over_range(x: torch.Tensor, begin: int, end: int, step: int) -> torch.Tensor:
    out = x.new_empty([x.size(0)])
    for t in hl.tile(x.size(0)):
        acc = hl.zeros([t], dtype=torch.float32)
        for j in range(begin, end, step):
            acc = acc + x[t, j] * j
        out[t] = acc
    return out


@helion.kernel
def tile_positions(x: torch.Tensor, begin: int) -> torch.Tensor:
    n = x.size(0)
    out = torch.full([n, 5], -1, dtype=torch.int32, device=x.device)
    for t in hl.tile(begin, n):
        out[t, 0] = t.begin
        out[t, 1] = t.end
        out[t, 2] = t.id
        out[t, 3] = t.count
        out[t, 4] = t.index
    return out


@helion.kernel
def unrolled(x: torch.Tensor, turns: hl.constexpr) -> torch.Tensor:
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        parts = [x[t] * c for c in (1, 2, 3)]
        for i in hl.static_range(turns):
            parts[i] = parts[i] + i
        n = 3
        while n > turns:
            parts[0] = parts[0] + parts[n - 1]
            n = n - 1
        out[t] = parts[0] if turns == 2 else parts[turns - 1]
    return out


def merged(x: torch.Tensor, flags: torch.Tensor, limit: int) -> torch.Tensor:
    rows = []
    for i, row in enumerate(x):
        rows.append(row * 4 if flags[i] > 0 else -row if i < limit else row)
    return torch.stack(rows)


def halved(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    # Halvings until the largest element of a row is at most 1.
    peaks = [float(row.abs().max()) for row in x]
    counts = torch.tensor([max(0, math.ceil(math.log2(peak))) for peak in peaks])
    return x * 0.5 ** counts[:, None], counts.int()


def sums_between(values: torch.Tensor, starts: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    pairs = zip(starts.tolist(), ends.tolist())
    return torch.stack([values[a:b].double().sum() for a, b in pairs])


def counted(x: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
    inside = torch.arange(x.size(1)) < count[:, None]
    return torch.where(inside, x + 1, 0.0)


def weighted(x: torch.Tensor, begin: int, end: int, step: int) -> torch.Tensor:
    zero = torch.zeros(x.size(0), dtype=torch.float64)
    return sum((x[:, j].double() * j for j in range(begin, end, step)), zero)


def positions(x: torch.Tensor, begin: int, block: int = 4) -> torch.Tensor:
    n = x.size(0)
    out = torch.full([n, 5], -1, dtype=torch.int32)
    count = -(-(n - begin) // block)
    for first in range(begin, n, block):
        for i in range(first, min(first + block, n)):
            row = [first, min(first + block, n), first // block, count, i]
            out[i] = torch.tensor(row, dtype=torch.int32)
    return out


def flagged() -> tuple[torch.Tensor, torch.Tensor]:
    return randn(7, 5), torch.tensor([1, 0, 0, 1, 0, 1, 0], dtype=torch.int32)


def ragged() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.tensor([0, 3, 3, 20, 30]), torch.tensor([3, 3, 20, 11, 37])


# fmt: off
CONTROL_FLOW = (
    Case("optional_bias_none", optional_bias, lambda: (randn(5, 7),), lambda x: x, blocks(4, 4),
         EXACT),
    Case("optional_bias", optional_bias, lambda: (randn(5, 7), randn(7, seed=1)),
         lambda x, bias: x + bias, blocks(4, 4), EXACT),
    Case("named_mode_double", named_mode, lambda: (randn(9), "double"), lambda x, mode: x * 2,
         blocks(4), EXACT),
    Case("named_mode_square", named_mode, lambda: (randn(9), "square"), lambda x, mode: x * x,
         blocks(4), EXACT),
    Case("branch_on_block_size_4", branch_on_block_size, lambda: (randn(19),), lambda x: x + 1,
         blocks(4), EXACT, is_shaped_by_config=True),
    Case("branch_on_block_size_8", branch_on_block_size, lambda: (randn(19),), lambda x: x - 1,
         blocks(8), EXACT, is_shaped_by_config=True),
    Case("static_operand_decides_none", static_operand_decides, lambda: (randn(9),), lambda x: x,
         blocks(4), EXACT),
    Case("static_operand_decides", static_operand_decides,
         lambda: (randn(9), randn(9, seed=1), 0.5),
         lambda x, ref, beta: x.double() + ref.double() * 1.5, blocks(4), 2),
    Case("static_operand_decides_zero", static_operand_decides,
         lambda: (randn(9), randn(9, seed=1), 0.0), lambda x, ref, beta: x, blocks(4), EXACT),
    Case("dynamic_branch", dynamic_branch, lambda: (*flagged(), 3), merged, blocks(), EXACT),
    Case("effect_of_the_taken_branch", effect_of_the_taken_branch,
         lambda: (randn(7), flagged()[1]),
         lambda x, flags: torch.where((flags > 0) & (torch.arange(7) > 1), x, 0.0), blocks(),
         EXACT),
    Case("halve_until_small", halve_until_small,
         lambda: (randn(5, 7) * torch.tensor([[0.1], [1], [8], [100], [1]]),), halved, blocks(),
         EXACT),
    Case("powers", powers, lambda: (integers(-3, 4, 11), integers(0, 20, 11, seed=1)), torch.pow,
         blocks(4), EXACT),
    Case("ragged_sums", ragged_sums, lambda: (randn(37), *ragged()), sums_between, blocks(8), 17),
    Case("bound_in_a_tensor", bound_in_a_tensor,
         lambda: (randn(4, 13), torch.tensor([0, 1, 9, 13])), counted, blocks(4), EXACT),
    Case("loop_over_range", loop_over_range, lambda: (randn(5, 13), 1, 12, 3), weighted, blocks(4),
         5),
    Case("loop_over_no_range", loop_over_range, lambda: (randn(5, 13), 4, 4, 1), weighted,
         blocks(4), 5),
    Case("tile_positions", tile_positions, lambda: (randn(15), 0), positions, blocks(4), EXACT,
         is_shaped_by_config=True),
    Case("tile_positions_from_5", tile_positions, lambda: (randn(15), 5), positions, blocks(4),
         EXACT, is_shaped_by_config=True),
    Case("unrolled_2", unrolled, lambda: (randn(9), 2), lambda x, turns: x.double() * 4,
         blocks(4), 3),
    Case("unrolled_3", unrolled, lambda: (randn(9), 3), lambda x, turns: x.double() * 3 + 2,
         blocks(4), 2),
)
# fmt: on
