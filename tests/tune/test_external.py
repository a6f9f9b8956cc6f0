"""Tuning functions that are no kernels: any factory with named choices."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch

from tilesmith import exc
from tilesmith.autotuner import (
    BooleanFragment,
    EnumFragment,
    PlainSpace,
    PowerOfTwoFragment,
    autotune,
)
from tilesmith.schedule.config import Config

X = torch.arange(8.0)
QUIET: dict[str, Any] = {"autotune_log_level": 50, "autotune_progress_bar": False}


def make(config: Config):
    """Fast at width 8; wrong where it is flipped."""

    def run(x: torch.Tensor) -> torch.Tensor:
        time.sleep(0.0005 * abs(config["width"] - 8))
        return -x if config["is_flipped"] else x + 1

    return run


TUNABLES = {"width": PowerOfTwoFragment(1, 32), "is_flipped": BooleanFragment()}


@pytest.mark.parametrize("algorithm", ["PatternSearch", "RandomSearch"])
def test_the_fastest_right_one_is_found(algorithm: str):
    options = {"count": 12} if algorithm == "RandomSearch" else {}
    config = autotune(
        TUNABLES,
        make,
        (X,),
        baseline_fn=lambda x: x + 1,
        algorithm=algorithm,
        autotune_budget_seconds=5,
        **options,
        **QUIET,
    )
    assert config == Config(width=8, is_flipped=False)  # pyright: ignore[reportCallIssue]


def test_arguments_are_not_changed_by_checks():
    def make_adder(config: Config):
        return lambda x: x.mul(config["factor"])

    tunables = {"factor": EnumFragment([1, 2])}
    x = X.clone()
    autotune(tunables, make_adder, (x,), autotune_budget_seconds=2, **QUIET)
    assert torch.equal(x, X)


def test_when_nothing_works_the_reasons_are_given():
    def fail(config: Config):
        raise RuntimeError(f"no width {config['width']}")

    with pytest.raises(exc.AutotuneError, match="no width") as caught:
        autotune({"width": PowerOfTwoFragment(1, 4)}, fail, (X,), **QUIET)
    assert "3  build error" in str(caught.value)


def test_an_unknown_option_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=r"no option 'wings'; allowed: .*copies"):
        autotune(TUNABLES, make, (X,), wings=2, **QUIET)
    with pytest.raises(ValueError, match="unknown search method 'Guess'"):
        autotune(TUNABLES, make, (X,), algorithm="Guess", **QUIET)


def test_a_plain_space_checks_and_completes_configs():
    space = PlainSpace(TUNABLES)
    assert space.normalize(Config(width=4)) == Config(width=4, is_flipped=False)  # pyright: ignore[reportCallIssue]
    assert space.fit({"width": 5, "is_flipped": True})["is_flipped"] is True
    with pytest.raises(exc.InvalidConfig, match="width = 5"):
        space.normalize(Config(width=5))  # pyright: ignore[reportCallIssue]
    with pytest.raises(exc.InvalidConfigKeys, match="depth"):
        space.normalize(Config(depth=1))  # pyright: ignore[reportCallIssue]
