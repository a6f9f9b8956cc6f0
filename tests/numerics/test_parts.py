"""Results that are judged a part at a time: the figures are those of the whole."""

from __future__ import annotations

from dataclasses import fields
from math import inf, nan

import pytest
import torch

from tilesmith.numerics import tally as parts
from tilesmith.numerics.compare import ErrorReport, measure_by
from tilesmith.numerics.tolerance import Budget

BUDGET = Budget(torch.bfloat16, reduction_length=64)


def pair(**changes: float) -> tuple[torch.Tensor, torch.Tensor]:
    """A result of 7x30 elements and its reference, which are off where it is said."""
    exact = torch.randn(7, 30, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    actual = exact.to(torch.bfloat16)
    for place, value in changes.items():
        actual.view(-1)[int(place.removeprefix("at_"))] = value
    return actual, exact


def assert_same(found: ErrorReport, whole: ErrorReport) -> None:
    for item in fields(ErrorReport):
        left, right = getattr(found, item.name), getattr(whole, item.name)
        is_close = isinstance(left, float) and left == pytest.approx(right, rel=1e-12, nan_ok=True)
        assert is_close or left == right, item.name


@pytest.mark.parametrize("length", [1, 16, 64, 209, 210])
@pytest.mark.parametrize(
    "changes", [{}, {"at_150": 3.0}, {"at_0": nan}, {"at_209": inf, "at_40": 9.0}], ids=str
)
def test_figures_of_parts_are_those_of_the_whole(
    monkeypatch: pytest.MonkeyPatch, length: int, changes: dict[str, float]
) -> None:
    actual, exact = pair(**changes)
    sizes = torch.rand(7, 1, dtype=torch.float64) + 0.5
    wholes = [measure_by(BUDGET, actual, exact, given) for given in (None, sizes)]
    monkeypatch.setattr(parts, "PART", length)
    for whole, given in zip(wholes, (None, sizes)):
        assert_same(measure_by(BUDGET, actual, exact, given), whole)
    turned = measure_by(BUDGET, actual.t(), exact.t().clone())
    assert turned.num_beyond == wholes[0].num_beyond
    assert turned.worst_index == tuple(reversed(wholes[0].worst_index or ()))


def test_integers_are_compared_in_parts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "PART", 8)
    exact = torch.arange(30)
    actual = exact.clone()
    actual[17] += 4
    report = measure_by(None, actual, exact)
    assert (report.num_beyond, report.worst_index, report.max_abs) == (1, (17,), 4.0)


def test_the_first_of_equally_bad_elements_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "PART", 4)
    actual, exact = torch.ones(12), torch.ones(12, dtype=torch.float64)
    actual[[5, 9]] = inf
    assert measure_by(Budget(torch.float32), actual, exact).worst_index == (5,)


def test_no_more_than_a_part_is_made_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "PART", 16)
    largest: list[int] = []
    plain = parts._figures

    def figures(budget: Budget, found: parts.ElementErrors, *rest: torch.Tensor) -> torch.Tensor:
        largest.append(found.absolute.numel())
        return plain(budget, found, *rest)

    monkeypatch.setattr(parts, "_figures", figures)
    measure_by(BUDGET, *pair())
    assert max(largest) == 16
    assert sum(largest) == 210
