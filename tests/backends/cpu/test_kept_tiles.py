"""Tiles that take many ops, or divisions lane by lane, are computed once and kept."""

from __future__ import annotations

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from benchmarks.ports import top_k


def gathered(x, width: int):
    rows, n = x.size()
    out = torch.empty_like(x)
    for r, t in hl.tile([rows, n]):
        place = t.index // width * width + (width - 1 - t.index % width)
        out[r, t] = hl.load(x, [r, place], extra_mask=(place < n)[None, :])
    return out


def test_indices_divided_by_a_runtime_number_are_divided_once_for_all_rows() -> None:
    x = torch.randn(6, 60)
    kernel = helion.kernel(gathered, config=helion.Config(block_sizes=[4, 32]))
    text = kernel.bind((x, 5)).to_code()
    assert "place = scratch(" in text
    assert torch.equal(kernel(x, 5), x.view(6, 12, 5).flip(-1).reshape(6, 60))


@pytest.mark.parametrize("columns", [16, 17, 100])
def test_a_chain_of_choices_grows_by_one_in_each_walk(columns: int) -> None:
    """The twelfth walk chose among all places found before, for every element."""
    x = torch.randn(9, columns)
    text = top_k.bind((x, 12)).to_code()
    walks = text.split("for i in range(")[1:]
    assert max(walk.count("where(") for walk in walks) <= 5
    values, places = top_k(x, 12)
    expected = torch.topk(x, 12)
    assert torch.equal(values, expected.values)
    assert torch.equal(places, expected.indices)


def bitonic(x):
    rows, n = x.size()
    out = torch.empty_like(x)
    for t in hl.tile(rows):
        values, place = x[t, :], torch.arange(n)
        for k in hl.static_range(1, n.bit_length()):
            for j in hl.static_range(k - 1, -1, -1):
                partner = (place ^ (1 << j)).to(torch.int64)
                other = torch.gather(values, 1, partner[None, :].expand(t, n))
                is_low = (((place >> k) ^ (place >> j)) & 1) == 0
                lower, upper = torch.minimum(values, other), torch.maximum(values, other)
                values = torch.where(is_low, lower, upper)
        out[t, :] = values
    return out


def shifted_sums(x):
    rows, n = x.size()
    out = torch.empty_like(x)
    for t in hl.tile(rows):
        total, place = x[t, :], torch.arange(n)
        for k in hl.static_range(n.bit_length() - 1):
            before = (place - (1 << k)).clamp(min=0).to(torch.int64)
            shifted = torch.gather(total, 1, before[None, :].expand(t, n))
            total = total + torch.where(place >= 1 << k, shifted, 0)
        out[t, :] = total
    return out


def steps(rank: int) -> int:
    return rank * (rank + 1) // 2


@pytest.mark.parametrize("rank", [3, 4, 5])
def test_code_of_a_network_grows_by_one_step_each(rank: int) -> None:
    """Each step computed both operands anew for each element: 16 numbers took 20 seconds."""
    x = torch.randn(5, 1 << rank)
    kernel = helion.kernel(bitonic)
    assert torch.equal(kernel(x), x.sort(1).values)
    assert len(kernel.bind((x,)).to_code().splitlines()) < 20 * steps(rank)


@pytest.mark.parametrize("rank", [6, 8, 10])
def test_code_of_a_scan_by_shifts_does_too(rank: int) -> None:
    x = torch.randint(-9, 10, (5, 1 << rank)).float()
    kernel = helion.kernel(shifted_sums)
    assert torch.equal(kernel(x), x.cumsum(1))
    assert len(kernel.bind((x,)).to_code().splitlines()) < 20 * rank
