"""New device values: filled, counted, listed."""

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.conformance.case import EXACT, Case, blocks, randn


@helion.kernel
def filled(x: torch.Tensor, s: torch.Tensor, n: int) -> torch.Tensor:
    out = torch.empty([11, x.size(0)], dtype=torch.float32, device=x.device)
    for t in hl.tile(x.size(0)):
        out[0, t] = hl.zeros([t]) + 1
        out[1, t] = hl.full([t], n)
        out[2, t] = hl.full([t], s[()], dtype=torch.float32)
        out[3, t] = hl.full([t], t.begin * 0 + 3, dtype=torch.int32)
        out[4, t] = hl.zeros([], dtype=torch.int64) - 1
        out[5, t] = torch.zeros([t]) + torch.ones([t.block_size])
        out[6, t] = torch.full([t], 2.5) + torch.full_like(x[t], n)
        out[7, t] = torch.zeros_like(x[t]) + torch.ones_like(x[t], dtype=torch.int32)
        filled = x[t].new_full([t], s[()])  # type: ignore[arg-type]
        out[8, t] = x.new_ones([t]) + filled + x.new_zeros([t])
        out[9, t] = hl.full([t], True, dtype=torch.bool)
        begin = hl.full([], t.begin, dtype=torch.int32)  # a tensor, though of a number's own type
        out[10, t] = torch.minimum(begin, begin + 2) - t.begin + 2
    return out


@helion.kernel
def listed(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(0), 2, 3], dtype=torch.float32, device=x.device)
    for t in hl.tile(x.size(0)):
        table = torch.tensor([[1, 2.5, 3], [-4, 5, 0.5]])
        first = torch.tensor(10) + torch.tensor([0.25], dtype=torch.float32)
        out[t, :, :] = x[t][:, None, None] + table[None, :, :] * torch.tensor([1, 2, 3]) + first
    return out


@helion.kernel
def rounded_up(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Accumulators of the next power of two meet rows of the size itself."""
    n = hl.specialize(y.size(1))
    wide = helion.next_power_of_2(n)
    rows = torch.empty([x.size(0), n], dtype=x.dtype, device=x.device)
    sums, products = torch.empty_like(rows[:, 0]), torch.empty_like(rows)
    for t in hl.tile(x.size(0)):
        acc, total = hl.zeros([t, wide]), hl.zeros([t, helion.next_power_of_2(y.size(1))])
        for u in hl.tile(x.size(1)):
            acc = torch.addmm(acc, x[t, u], y[u, :])
            total += x[t, u] @ y[u, :]
        products[t, :] = acc
        rows[t, :] = total + y[0, :]
        sums[t] = acc.sum(1)
    return products, rows, sums


@helion.kernel
def stored_whole(x: torch.Tensor) -> torch.Tensor:
    """The only tile of an axis goes where the whole of it goes."""
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0), block_size=8):
        for u in hl.tile(x.size(1)):
            out[:, u] = x[t, u] * 2
    return out


def rounded_rows(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    product = x.double() @ y.double()
    return product, product + y[0].double(), product.sum(1)


def filled_rows(x: torch.Tensor, s: torch.Tensor, n: int) -> torch.Tensor:
    rows = [1, n, s.item(), 3, -1, 1, 2.5 + n, 1, 1 + s.item(), 1, 2]
    return torch.tensor(rows, dtype=torch.float32)[:, None].expand(11, x.size(0)).contiguous()


def listed_rows(x: torch.Tensor) -> torch.Tensor:
    table = torch.tensor([[1.0, 5, 9], [-4, 10, 1.5]], dtype=torch.float64)
    return x.double()[:, None, None] + table + 10.25


# fmt: off
CREATION = (
    Case("filled", filled, lambda: (randn(13), torch.tensor(1.5), 7), filled_rows, blocks(8),
         EXACT),
    Case("listed", listed, lambda: (randn(7),), listed_rows, blocks(4), 3,
         needs_static_shapes=True),
    *(Case(f"rounded_up_{n}", rounded_up, lambda n=n: (randn(7, 11), randn(11, n, seed=1)),
           rounded_rows, blocks(4, 8), 11 * n) for n in (5, 8, 13)),
    *(Case(f"stored_whole_{n}", stored_whole, lambda n=n: (randn(n, 13),), lambda x: x * 2,
           blocks(8), EXACT, needs_static_shapes=True) for n in (3, 4, 8)),
)
# fmt: on
