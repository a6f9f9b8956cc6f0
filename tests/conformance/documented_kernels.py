"""The kernels printed in the language document, and what they must compute."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.conformance.case import Case, blocks, randn


@helion.kernel
def scale_rows(x: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    rows, cols = x.shape
    y = torch.empty_like(x)
    for tr, tc in hl.tile([rows, cols]):
        y[tr, tc] = x[tr, tc] * s[tr][:, None]
    return y


@helion.kernel
def sum_list(xs: list[torch.Tensor], w: list[float]) -> torch.Tensor:
    out = torch.empty_like(xs[0])
    for t in hl.tile(out.size(0)):
        acc = hl.zeros([t], dtype=torch.float32)
        for x, c in zip(xs, w):
            acc = acc + x[t] * c
        out[t] = acc
    return out


@helion.kernel
def mm_epi(
    a: torch.Tensor, b: torch.Tensor, finish: Callable[..., Any] = lambda s, where: s
) -> torch.Tensor:
    (rows, inner), cols = a.shape, b.size(1)
    c = a.new_empty([rows, cols])
    for ti, tj in hl.tile([rows, cols]):
        s = hl.zeros([ti, tj], dtype=torch.float32)
        for tk in hl.tile(inner):
            s = torch.addmm(s, a[ti, tk], b[tk, tj])
        c[ti, tj] = finish(s, (ti, tj)).to(c.dtype)
    return c


@helion.kernel
def row_std(x: torch.Tensor) -> torch.Tensor:
    m, _ = x.shape
    out = torch.empty([m], dtype=torch.float32, device=x.device)
    for t in hl.tile(m):
        row = x[t, :].to(torch.float32)
        mu = row.mean(dim=-1, keepdim=True)
        out[t] = torch.sqrt(((row - mu) ** 2).mean(-1))
    return out


@helion.kernel
def local_name_in_two_loops(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    first, second = torch.empty_like(x), torch.empty_like(y)
    for t in hl.tile(x.size(0)):
        value = x[t] * 2
        first[t] = value
    for t in hl.tile(y.size(0)):
        value = y[t] + 1
        second[t] = value
    return first, second


@helion.kernel
def fp64_sees_the_whole_double(x: torch.Tensor, alpha: float) -> torch.Tensor:
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = x[t] * alpha + alpha
    return out


def with_bias(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor) -> tuple[Any, ...]:
    return a, b, lambda s, where: torch.clamp(s * 0.5 + bias[where[1]], min=0)


def half_plus_bias(a: torch.Tensor, b: torch.Tensor, finish: Callable[..., Any]) -> torch.Tensor:
    bias = finish.__closure__[0].cell_contents  # type: ignore[index]
    return torch.clamp(a.double() @ b.double() * 0.5 + bias.double(), min=0)


def deviation(x: torch.Tensor) -> torch.Tensor:
    return x.double().std(-1, correction=0)


def weighted_sum(xs: list[torch.Tensor], w: list[float]) -> torch.Tensor:
    total = torch.zeros_like(xs[0], dtype=torch.float64)
    for x, c in zip(xs, w):
        # A runtime number meets fp32: it is rounded to it first.
        total += x.double() * torch.tensor(c, dtype=torch.float32).double()
    return total


def vectors() -> list[torch.Tensor]:
    return [randn(37, seed=seed) for seed in range(3)]


# fmt: off
DOCUMENTED = (
    Case("scale_rows", scale_rows, lambda: (randn(7, 19), randn(7, seed=1)),
         lambda x, s: x.double() * s.double()[:, None], blocks(4, 8)),
    Case("scale_rows_bf16", scale_rows,
         lambda: (randn(7, 19, dtype=torch.bfloat16), randn(7, seed=1, dtype=torch.bfloat16)),
         lambda x, s: x * s[:, None], blocks(4, 8), 0, is_interpretable=False),
    Case("sum_list", sum_list, lambda: (vectors(), [0.5, -0.1, 3.0]), weighted_sum, blocks(8), 3),
    Case("sum_list_of_one", sum_list, lambda: (vectors()[:1], [0.1]), weighted_sum, blocks(8)),
    Case("mm_epi", mm_epi, lambda: (randn(19, 21), randn(21, 17)),
         lambda a, b: a.double() @ b.double(), blocks(16, 16, 16), 21),
    Case("mm_epi_bias", mm_epi,
         lambda: with_bias(randn(19, 21), randn(21, 17, seed=1), randn(17, seed=2)),
         half_plus_bias, blocks(16, 16, 16), 21),
    Case("mm_epi_fp16", mm_epi,
         lambda: (randn(19, 21, dtype=torch.float16), randn(21, 17, dtype=torch.float16)),
         lambda a, b: a.double() @ b.double(), blocks(16, 16, 16), 21),
    Case("row_std", row_std, lambda: (randn(5, 13) + 10,), deviation, blocks(4), 13),
    Case("row_std_looped", row_std, lambda: (randn(5, 29) + 10,), deviation,
         blocks(4, reduction_loops=[8]), 29),
    Case("local_name_in_two_loops", local_name_in_two_loops, lambda: (randn(9), randn(21, seed=1)),
         lambda x, y: (x.double() * 2, y.double() + 1), blocks(4, 8)),
    Case("fp64_sees_the_whole_double", fp64_sees_the_whole_double,
         lambda: (randn(9).double(), 0.1), lambda x, alpha: x * alpha + alpha, blocks(4), 0),
)
# fmt: on
