"""Programs that change nothing for long are not said to wait while their loops go on."""

from __future__ import annotations

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.exc import ProgramsWaitForever


@helion.kernel(static_shapes=True, check=True)
def largest(x: torch.Tensor) -> torch.Tensor:
    out = torch.zeros(x.size(0))
    n = x.size(1)
    for i in hl.grid(x.size(0)):
        j = hl.zeros([], dtype=torch.int32)
        while j < n:
            hl.atomic_max(out, [i], hl.load(x, [i, j]))
            j = j + 1
    return out


@pytest.mark.parametrize("rows", [1, 3])
def test_updates_that_change_nothing_are_no_wait(rows: int) -> None:
    assert torch.equal(largest(-torch.ones(rows, 200)), torch.zeros(rows))


@helion.kernel(static_shapes=True, check=True)
def waiting(flag: torch.Tensor) -> torch.Tensor:
    out = torch.zeros(2)
    for i in hl.grid(2):
        seen = hl.zeros([], dtype=torch.int32)
        while seen == 0:
            seen = hl.atomic_add(flag, [0], 0, sem="acquire")
        out[i] = 1
    return out


def test_who_asks_and_carries_nothing_new_waits() -> None:
    with pytest.raises(ProgramsWaitForever):
        waiting(torch.zeros(1, dtype=torch.int32))
