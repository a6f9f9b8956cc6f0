"""Losses of no rows are what torch says they are: a mean of nothing is not a number."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from examples.cross_entropy import cross_entropy
from examples.kl_div import kl_div

SIZES = ((0, 5), (3, 0), (0, 0), (2, 3))


def same(ours: torch.Tensor, theirs: torch.Tensor) -> bool:
    return torch.allclose(ours.double(), theirs.double(), rtol=1e-6, equal_nan=True)


@pytest.mark.filterwarnings("ignore:reduction:UserWarning")
@pytest.mark.parametrize("reduction", ["sum", "mean", "batchmean", "none"])
@pytest.mark.parametrize("size", SIZES)
def test_kl_div(size: tuple[int, int], reduction: str):
    log_pred, target = torch.randn(size).log_softmax(-1), torch.rand(size)
    wanted = functional.kl_div(log_pred.double(), target.double(), reduction=reduction)
    for _ in range(3):
        assert same(kl_div(log_pred, target, reduction), wanted)


@pytest.mark.parametrize("reduction", ["sum", "none"])
def test_kl_div_of_what_is_no_probability(reduction: str):
    """Not a number, as in torch; targets of 0 have no term, also where torch multiplies by -inf."""
    target = torch.tensor([[0.0, 0.5, float("nan"), -0.5], [0.0, 0.5, 0.5, 1.0]])
    log_pred = torch.full((2, 4), -1.5)
    wanted = functional.kl_div(log_pred.double(), target.double(), reduction=reduction)
    assert wanted.isnan().sum() == (1 if reduction == "sum" else 2)
    assert same(kl_div(log_pred, target, reduction), wanted)


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_cross_entropy(rows: int):
    logits, labels = torch.randn(rows, 4), torch.zeros(rows, dtype=torch.long)
    wanted = functional.cross_entropy(logits.double(), labels)
    for _ in range(3):
        assert same(cross_entropy(logits, labels), wanted)
