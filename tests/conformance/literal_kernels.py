"""Numbers in the source that meet no tile: they keep the digits and the type they have there."""

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.conformance.case import EXACT, Args, Case, blocks, randn

THIRD = 1.0 / 3.0


@helion.kernel
def double_literals(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    alone = torch.empty([x.size(0)], dtype=torch.float64, device=x.device)
    chosen = torch.empty_like(alone)
    for t in hl.tile(x.size(0)):
        alone[t] = x[t].new_full([t], THIRD, dtype=torch.float64)
        chosen[t] = torch.where(
            x[t] > 0,
            torch.full([t], THIRD, dtype=torch.float64),
            torch.full([t], 0.1, dtype=torch.float64),
        )
    return alone, chosen


def _double_literals(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    alone = torch.full([x.size(0)], THIRD, dtype=torch.float64)
    return alone, torch.where(x.cpu() > 0, alone, torch.full_like(alone, 0.1))


@helion.kernel
def next_floats(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = torch.nextafter(x[t], y[t])
    return out


def _pairs() -> Args:
    x = randn(21)
    x[:4] = torch.tensor([0.0, -0.0, 1.0, -1.0])
    return x, randn(21, seed=1)


LITERALS = (
    Case("double_literals", double_literals, lambda: (randn(21),), _double_literals, blocks(8),
         EXACT),
    Case("next_floats", next_floats, _pairs, torch.nextafter, blocks(8), EXACT),
)  # fmt: skip
