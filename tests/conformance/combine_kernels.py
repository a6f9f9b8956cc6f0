"""Reductions and scans with combine functions of the user's own, against plain loops in fp64."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch._higher_order_ops import associative_scan

import tilesmith as helion
import tilesmith.language as hl
from tests.conformance.case import EXACT, Case, blocks, integers, randn

Elements = tuple[torch.Tensor, ...]


# --- combine functions ---------------------------------------------------------------------------


def larger(left: Any, right: Any) -> Any:
    """Of two (value, position) pairs the larger value, of equal ones the first."""
    is_left = (left[0] > right[0]) | ((left[0] == right[0]) & (left[1] < right[1]))
    return torch.where(is_left, left[0], right[0]), torch.where(is_left, left[1], right[1])


def same_segment(left_value: Any, left_id: Any, right_value: Any, right_id: Any) -> Any:
    total = left_value + right_value
    return torch.where(left_id == right_id, total, right_value), right_id


def chained(left: Any, right: Any) -> Any:
    """One after the other: ``x -> a x + b``."""
    return left[0] * right[0], left[1] * right[0] + right[1]


def moments(left: Any, right: Any) -> Any:
    """Mean, sum of squared deviations and count of two groups taken together."""
    (mean_l, m2_l, n_l), (mean_r, m2_r, n_r) = left, right
    n = n_l + n_r
    delta = mean_r - mean_l
    return mean_l + delta * n_r / n, m2_l + m2_r + delta * delta * n_l * n_r / n, n


def softmax_pair(left: Any, right: Any) -> Any:
    """The largest element and the sum of exponentials relative to it."""
    top = torch.maximum(left[0], right[0])
    return top, left[1] * torch.exp(left[0] - top) + right[1] * torch.exp(right[0] - top)


@helion.kernel
def farther(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.where(a.abs() >= b.abs(), a, b)


# --- kernels -------------------------------------------------------------------------------------


@helion.kernel
def largest_and_place(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    best, place = torch.empty_like(x[:, 0]), torch.empty_like(x[:, 0], dtype=torch.int32)
    for t in hl.tile(x.size(0)):
        row = x[t, :]
        index = hl.arange(x.size(1))[None, :].expand_as(row)
        best[t], place[t] = hl.reduce(larger, (row, index), dim=1, other=(float("-inf"), 99))
    return best, place


@helion.kernel
def segment_sums(ids: torch.Tensor, x: torch.Tensor, num_segments: int) -> torch.Tensor:
    out = torch.zeros([num_segments, x.size(1)], dtype=x.dtype, device=x.device)
    num_rows = x.size(0)
    for t, u in hl.tile(x.size()):
        values, here = x[t, u], ids[t]
        running, _ = hl.associative_scan(
            same_segment, (values, here.float().unsqueeze(1).expand_as(values)), dim=0
        )
        following = hl.load(ids, [t.index + 1], extra_mask=t.index < num_rows - 1)
        is_last = (here != following) | (t.index == num_rows - 1)
        is_last = is_last | (t.index % t.block_size == t.block_size - 1)
        hl.atomic_add(out, [here, u], torch.where(is_last[:, None], running, 0.0))
    return out


@helion.kernel
def recurrence(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    there, back = torch.empty_like(a), torch.empty_like(a)
    for t in hl.tile(a.size(0)):
        _, there[t, :] = hl.associative_scan(chained, (a[t, :], b[t, :]), dim=1)
        _, back[t, :] = hl.associative_scan(chained, (a[t, :], b[t, :]), dim=-1, reverse=True)
    return there, back


@helion.kernel
def recurrence_down_columns(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(a)
    for t in hl.tile(a.size(1)):
        _, out[:, t] = hl.associative_scan(chained, (a[:, t], b[:, t]), 0, reverse=True)
    return out


@helion.kernel
def mean_and_variance(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    mean, var = torch.empty_like(x[:, 0]), torch.empty_like(x[:, 0])
    for t in hl.tile(x.size(0)):
        row = x[t, :]
        ones, zeros = torch.ones_like(row), torch.zeros_like(row)
        found = hl.reduce(moments, (row, zeros, ones), dim=1)
        mean[t] = found[0]
        var[t] = found[1] / found[2]
    return mean, var


@helion.kernel
def log_sum_exp_of_tiles(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x[:, 0])
    for t in hl.tile(x.size(0)):
        top = hl.full([t], float("-inf"), dtype=torch.float32)
        total = hl.zeros([t], dtype=torch.float32)
        for u in hl.tile(x.size(1)):
            part = x[t, u]
            new = hl.reduce(softmax_pair, (part, torch.ones_like(part)), dim=1)
            top, total = softmax_pair((top, total), new)
        out[t] = top + torch.log(total)
    return out


@helion.kernel
def parity(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    out = torch.empty([x.size(0)], dtype=torch.bool, device=x.device)
    running = torch.empty(x.shape, dtype=torch.bool, device=x.device)
    for t in hl.tile(x.size(0)):
        is_odd = x[t, :] % 2 != 0
        out[t] = hl.reduce(operator.xor, is_odd, dim=1)
        running[t, :] = hl.associative_scan(torch.logical_xor, is_odd, 1, reverse=True)
    return out, running


@helion.kernel
def product_modulo(x: torch.Tensor, modulus: int) -> tuple[torch.Tensor, torch.Tensor]:
    out, tails = torch.empty_like(x[:, 0]), torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        row = x[t, :]
        out[t] = hl.reduce(lambda a, b: (a * b) % modulus, row, dim=1)
        tails[t, :] = hl.associative_scan(lambda a, b: (a * b) % 7, row, 1, reverse=True)
    return out, tails


@helion.kernel
def farthest(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    out, running = torch.empty_like(x[:, 0]), torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = hl.reduce(farther, x[t, :], dim=-1, other=0)
        running[t, :] = associative_scan(farther, x[t, :], 1)
    return out, running


@helion.kernel
def extremes_of_matrices(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    high = torch.empty([x.size(0), 1, 1], dtype=x.dtype, device=x.device)
    far = torch.empty([x.size(0)], dtype=x.dtype, device=x.device)
    for i in hl.grid(x.size(0)):
        high[i, :, :] = hl.reduce(torch.maximum, x[i, :, :], keep_dims=True)
        far[i] = hl.reduce(farther, x[i, :, :], other=0)
    return high, far


@helion.kernel
def decayed_tails(x: torch.Tensor, decay: float) -> torch.Tensor:
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        row = x[t, :] * decay
        sums, _ = hl.associative_scan(
            lambda x, y: (x[0] * (y[1] * decay) + y[0], x[1] * y[1] * decay),
            (row, torch.ones_like(row)), 1, reverse=True,
        )  # fmt: skip
        out[t, :] = sums * decay
    return out


@helion.kernel
def recurrence_over_merged_axes(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(a)
    for i in hl.grid(a.size(0)):
        for t in hl.tile(a.size(1), block_size=4):
            gain, shift = a[i, t, :].reshape(-1), b[i, t, :].reshape(-1)
            _, found = hl.associative_scan(chained, (gain, shift), 0)
            out[i, t, :] = found.reshape(t, a.size(2))
    return out


@helion.kernel
def farthest_of_jagged_rows(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x[:, 0])
    for t in hl.tile(x.size(0)):
        best = hl.zeros([t], dtype=torch.float32)
        for u in hl.jagged_tile(lengths[t]):
            best = farther.fn(best, hl.reduce(farther, x[t, u] + 3, dim=1, other=0))
        out[t] = best
    return out


@helion.kernel
def moments_of_jagged_rows(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    out = torch.zeros_like(x[:, 0])
    for t in hl.tile(x.size(0)):
        for u in hl.jagged_tile(lengths[t]):
            row = x[t, u]
            parts = (row, torch.zeros_like(row), torch.ones_like(row))
            found = hl.reduce(moments, parts, dim=1)
            out[t] = found[0]
    return out


# --- references ----------------------------------------------------------------------------------


def running(
    fn: Callable[..., Any], xs: Elements, dim: int, reverse: bool = False
) -> list[Elements]:
    """What a plain loop has after each step, in the order of the indices."""
    lines = [tuple(x.select(dim, i) for x in xs) for i in range(xs[0].size(dim))]
    order = lines[::-1] if reverse else lines
    found = [order[0]]
    for line in order[1:]:
        found.append(fn(found[-1], line))
    return found[::-1] if reverse else found


def scanned(
    fn: Callable[..., Any], xs: Elements, dim: int, reverse: bool = False
) -> tuple[torch.Tensor, ...]:
    steps = running(fn, xs, dim, reverse)
    return tuple(torch.stack(line, dim) for line in zip(*steps))


def reference_recurrence(a: torch.Tensor, b: torch.Tensor) -> Elements:
    wide = (a.double(), b.double())
    return scanned(chained, wide, 1)[1], scanned(chained, wide, 1, reverse=True)[1]


def reference_parity(x: torch.Tensor) -> Elements:
    is_odd = x % 2 != 0
    return is_odd.sum(1) % 2 != 0, is_odd.flip(1).cumsum(1).flip(1) % 2 != 0


def reference_product(x: torch.Tensor, modulus: int) -> Elements:
    def step(m: int) -> Callable[..., Any]:
        return lambda left, right: ((left[0] * right[0]) % m,)

    (tails,) = scanned(step(7), (x,), 1, reverse=True)
    return running(step(modulus), (x,), 1)[-1][0], tails


def far(left: Elements, right: Elements) -> Elements:
    return (torch.where(left[0].abs() >= right[0].abs(), left[0], right[0]),)


def reference_farthest(x: torch.Tensor) -> Elements:
    (steps,) = scanned(far, (x,), 1)
    return steps[:, -1], steps


def reference_extremes(x: torch.Tensor) -> Elements:
    flat = x.flatten(1)
    return flat.amax(1)[:, None, None], running(far, (flat,), 1)[-1][0]


def reference_decay(x: torch.Tensor, decay: float) -> torch.Tensor:
    found = torch.zeros_like(x, dtype=torch.float64)
    for i in range(x.size(1)):
        for j in range(i, x.size(1)):
            found[:, i] += x[:, j].double() * decay ** (j - i + 2)
    return found


def reference_merged(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    parts: list[torch.Tensor] = []
    for first in range(0, a.size(1), 4):
        block = (slice(None), slice(first, first + 4))
        flat = tuple(x[block].double().flatten(1) for x in (a, b))
        parts.append(scanned(chained, flat, 1)[1].reshape(a[block].shape))
    return torch.cat(parts, 1)


def of_jagged_rows(
    function: Callable[[torch.Tensor], torch.Tensor],
) -> Callable[..., torch.Tensor]:
    def reference(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        rows = [x[i, : int(n)] for i, n in enumerate(lengths)]
        return torch.stack([function(row) if len(row) else x.new_zeros(()) for row in rows])

    return reference


def gains(*shape: int) -> Elements:
    return randn(*shape).sigmoid(), randn(*shape, seed=1)


def segments() -> tuple[torch.Tensor, torch.Tensor, int]:
    ids = torch.tensor([0] * 3 + [1] + [3] * 12 + [4] * 2 + [5] * 11)
    return ids, randn(len(ids), 7), 6


def ties() -> tuple[torch.Tensor]:
    return (randn(6, 13).round().clamp(max=1) - 2,)


# fmt: off
COMBINES = (
    Case("largest_and_place", largest_and_place, ties,
         lambda x: (x.amax(1), x.argmax(1).int()), blocks(4), EXACT),
    Case("segment_sums", segment_sums, segments,
         lambda ids, x, n: x.new_zeros(n, x.size(1)).double().index_add(0, ids, x.double()),
         blocks(8, 4), 29),
    Case("recurrence", recurrence, lambda: gains(5, 17), reference_recurrence, blocks(4), 17),
    Case("recurrence_down_columns", recurrence_down_columns, lambda: gains(13, 19),
         lambda a, b: scanned(chained, (a.double(), b.double()), 0, reverse=True)[1],
         blocks(16), 13),
    Case("mean_and_variance", mean_and_variance, lambda: (randn(5, 13) + 1,),
         lambda x: (x.double().mean(1), x.double().var(1, correction=0)), blocks(4), 26),
    Case("log_sum_exp_of_tiles", log_sum_exp_of_tiles, lambda: (randn(5, 29) - 3,),
         lambda x: x.double().logsumexp(1), blocks(4, 8), 29),
    Case("parity", parity, lambda: (integers(-9, 9, 5, 13).int(),), reference_parity, blocks(4),
         EXACT),
    Case("product_modulo", product_modulo, lambda: (integers(1, 30, 5, 17).int(), 11),
         reference_product, blocks(4), EXACT),
    Case("farthest", farthest, lambda: (randn(5, 13),), reference_farthest, blocks(4), EXACT),
    Case("farthest_fp16", farthest, lambda: (randn(5, 16, dtype=torch.float16),),
         reference_farthest, blocks(4), EXACT),
    Case("farthest_bf16", farthest, lambda: (randn(5, 13, dtype=torch.bfloat16),),
         reference_farthest, blocks(4), EXACT, is_interpretable=False),
    Case("extremes_of_matrices", extremes_of_matrices, lambda: (randn(3, 5, 13) - 4,),
         reference_extremes, blocks(), EXACT),
    Case("decayed_tails", decayed_tails, lambda: (randn(5, 13), 0.75), reference_decay, blocks(4),
         13),
    Case("recurrence_over_merged_axes", recurrence_over_merged_axes, lambda: gains(3, 10, 5),
         reference_merged, blocks(), 20, needs_static_shapes=True),
    Case("farthest_of_jagged_rows", farthest_of_jagged_rows,
         lambda: (randn(6, 13), torch.tensor([3, 0, 13, 8, 1, 9])),
         of_jagged_rows(lambda row: reference_farthest(row[None] + 3)[0][0]), blocks(4, 8), EXACT),
    Case("moments_of_jagged_rows", moments_of_jagged_rows,
         lambda: (randn(6, 8), torch.tensor([3, 1, 7, 8, 1, 2])),
         of_jagged_rows(lambda row: row.double().mean()), blocks(4, 8), 8,
         varies_with_blocks=True, has_small_default=False),
)
# fmt: on
