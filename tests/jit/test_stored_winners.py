"""A first call takes a stored winner without asking its tuner, unless the tuner wants none."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tilesmith import language as hl
from tilesmith.jit import bound_kernel
from tilesmith.jit.typed import make_kernel as kernel
from tilesmith.schedule.config import Config

WINNER = Config(block_sizes=[32])


class Tuner:
    """Counts how often it is asked."""

    def __init__(self, *, takes_stored: bool = True) -> None:
        self.takes_stored = takes_stored
        self.num_asked = 0

    def first_config(self, bound: Any, args: tuple[Any, ...]) -> None:
        self.num_asked += 1


def double(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] * 2
    return out


@pytest.fixture(autouse=True)
def lookups(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Lists of the decorator's configs for which a winner was looked up; one is always found."""
    asked: list[Any] = []

    def find(bound: Any, args: tuple[Any, ...], configs: Any) -> Config:
        asked.append(list(configs))
        return WINNER

    monkeypatch.setattr(bound_kernel, "find_stored_config", find)
    return asked


def chosen(tuner: Any, **options: Any) -> Config | None:
    """What a first call uses."""
    made = kernel(double, tuner=tuner, **options)
    x = torch.randn(100)
    assert torch.equal(made(x), x * 2)
    return made.bind((x,)).chosen


def test_a_stored_winner_is_used_and_the_tuner_left_alone(lookups: list[Any]) -> None:
    tuner = Tuner()
    assert chosen(tuner) == WINNER
    assert (lookups, tuner.num_asked) == ([[]], 0)


def test_configs_of_the_decorator_are_told_to_the_lookup(lookups: list[Any]) -> None:
    given = [Config(block_sizes=[16]), WINNER]
    assert chosen(Tuner(), configs=given) == WINNER
    assert lookups == [given]


@pytest.mark.parametrize(
    ("tuner", "options"),
    [
        (Tuner(takes_stored=False), {}),
        (Tuner(), {"config": Config(block_sizes=[16])}),
        (Tuner(), {"force_autotune": True}),
    ],
    ids=["a tuner that wants none", "one config is given", "a search is forced"],
)
def test_nothing_is_looked_up(tuner: Tuner, options: dict[str, Any], lookups: list[Any]) -> None:
    assert chosen(tuner, **options) is None
    assert (lookups, tuner.num_asked) == ([], 1)
