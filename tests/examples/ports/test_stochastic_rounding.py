"""Stochastic rounding: one of both neighbours, with the right chance, the same for every config."""

from __future__ import annotations

import pytest
import torch

from examples.ports import stochastic_rounding
from examples.ports.stochastic_rounding import chance_away, neighbours, round_stochastically
from tests.examples.case import blocks

NUM_SEEDS = 400
SIGMAS = 5


def test_results_are_neighbours() -> None:
    x = torch.randn(1009, generator=torch.Generator().manual_seed(0)) * 1e3
    toward, away = neighbours(x)
    result = round_stochastically(x, 3).double()
    assert torch.all((result == toward) | (result == away))


def test_the_mean_of_many_seeds_is_the_number() -> None:
    x = torch.tensor([1.0 + 2**-9, -3.0 - 2**-12, 1.5, 2.0**-130, 7e30])
    toward, away = neighbours(x)
    results = torch.stack([round_stochastically(x, seed) for seed in range(NUM_SEEDS)]).double()
    seen = (results == away).double().mean(0)
    chance = chance_away(x)
    sigma = (chance * (1 - chance) / NUM_SEEDS).sqrt()
    is_exact = toward == away
    assert torch.all(results[:, is_exact] == x[is_exact].double())
    assert torch.all(((seen - chance).abs() <= SIGMAS * sigma) | is_exact)


def test_other_seeds_give_other_results() -> None:
    x = torch.randn(1009, generator=torch.Generator().manual_seed(0))
    results = [round_stochastically(x, seed) for seed in (1, 1, 2)]
    assert torch.equal(results[0], results[1])
    assert not torch.equal(results[0], results[2])


@pytest.mark.parametrize("block", [1, 16, 128])
def test_blocks_change_nothing(block: int) -> None:
    x = torch.randn(257, generator=torch.Generator().manual_seed(0))
    bound = round_stochastically.bind((x, 5))
    assert torch.equal(bound.compile_config(blocks(block))(x, 5), round_stochastically(x, 5))


def test_special_values_stay() -> None:
    largest = torch.finfo(torch.bfloat16).max
    x = torch.tensor([0.0, -0.0, float("inf"), float("-inf"), float("nan"), largest])
    result = stochastic_rounding.round_stochastically(x, 11)
    assert torch.equal(result[:4].float(), x[:4])
    assert torch.equal(result[:2].signbit(), x[:2].signbit())
    assert result[4].isnan()
    assert float(result[5]) == largest
