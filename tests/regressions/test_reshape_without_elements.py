"""A value with an axis of size 0 takes any other shape without elements, as in eager."""

from __future__ import annotations

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl


@helion.kernel(static_shapes=True)
def split_and_merged(x: torch.Tensor, out: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    m, n = x.shape
    sums = torch.full([m], 7, dtype=torch.float32, device=x.device)
    for t in hl.tile(m):
        split = x[t, :].reshape(t, 1, n, 5)
        out[t, :] = split.flatten(1, 3).sum(-1)[:, None] + split.reshape(t, 5 * n).sum(1)[:, None]
        merged = x[t, :].reshape(t.block_size * n)
        sums[t] = merged.reshape(t, n).sum(1) + 1
    return out, sums


@helion.kernel(static_shapes=True)
def flat(x: torch.Tensor) -> torch.Tensor:
    out = torch.full([x.size(0), 1], 7, dtype=torch.float32, device=x.device)
    for i in hl.grid(x.size(0)):
        out[i, :] = x[i, :, :].reshape(-1).sum(0) + x[i, :, :].view(4, 0).sum()
    return out


def test_axes_are_split_and_merged() -> None:
    x, out = torch.ones(6, 0), torch.full([6, 1], 7.0)
    found, sums = split_and_merged(x, out)
    assert torch.equal(found, torch.zeros(6, 1))
    assert torch.equal(sums, torch.ones(6))


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0)])
def test_two_whole_axes_become_one(shape: tuple[int, int]) -> None:
    assert torch.equal(flat(torch.ones(2, *shape)), torch.zeros(2, 1))


@pytest.mark.parametrize("shape", [(0, 0), (0, 3)])
def test_code_is_emitted_for_a_gpu(shape: tuple[int, int]) -> None:
    source = flat.bind((torch.ones(2, *shape),)).to_triton_code(target="cuda:90")
    assert "tl.zeros" in source
