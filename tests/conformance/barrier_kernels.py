"""Top-level loops that wait for each other: ``hl.barrier``."""

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.conformance.case import EXACT, Case, blocks, randn


@helion.kernel
def two_stages(x: torch.Tensor) -> torch.Tensor:
    n = x.size(0)
    part = torch.empty([n], dtype=torch.float32, device=x.device)
    out = torch.empty_like(part)
    for t in hl.tile(n):
        part[t] = x[t, :].to(torch.float32).sum(-1)
    hl.barrier()
    for u in hl.tile(n):
        out[u] = part[u] / part[0]
    return out


@helion.kernel
def centred_columns(x: torch.Tensor) -> torch.Tensor:
    """Three stages: partial sums, their totals, and what is left without the means."""
    m, n = x.size()
    block = hl.register_block_size(m)
    partial = torch.zeros([helion.cdiv(m, block), n], dtype=torch.float32, device=x.device)
    means = torch.empty([n], dtype=torch.float32, device=x.device)
    out = torch.empty_like(x)
    for t, u in hl.tile([m, n], block_size=[block, None]):
        partial[t.id, u] = x[t, u].sum(0)
    hl.barrier()
    for u in hl.tile(n):
        means[u] = partial[:, u].sum(0) / m
    hl.barrier()
    for t, u in hl.tile([m, n], block_size=[block, None]):
        out[t, u] = x[t, u] - means[u]
    return out


@helion.kernel
def compacted(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """How far the last loop runs is known only when the first has ended."""
    n = x.size(0)
    count = torch.zeros([], dtype=torch.int32, device=x.device)
    out = torch.full_like(x, -1.0)
    for t in hl.tile(n):
        hl.atomic_add(count, [], (x[t] > 0).to(torch.int32).sum().to(torch.int32))
    hl.barrier()
    for u in hl.tile(count):
        out[u] = u.index.to(torch.float32)
    return out, count


def _centred(x: torch.Tensor) -> torch.Tensor:
    return x.double() - x.double().mean(0)


def _compacted(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    count = (x > 0).sum()
    out = torch.where(torch.arange(x.numel()) < count, torch.arange(x.numel()), -1)
    return out.float(), count.int()


BARRIERS: tuple[Case, ...] = (
    Case(
        "two stages", two_stages, lambda: (randn(37, 19).abs() + 1,),
        lambda x: x.double().sum(-1) / x.double().sum(-1)[0], blocks(8, 16), 19,
        is_interpretable=False,
    ),
    Case(
        "three stages", centred_columns, lambda: (randn(37, 21),), _centred,
        blocks(8, 16, 8, 16), 37, is_interpretable=False,
    ),
    Case(
        "a bound from an earlier stage", compacted, lambda: (randn(101),), _compacted,
        blocks(16, 8), EXACT, is_interpretable=False,
    ),
)  # fmt: skip
