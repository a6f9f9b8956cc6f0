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
