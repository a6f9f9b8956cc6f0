"""Runs of some programs: the first, the last, some by seed; what they write is noted."""

from __future__ import annotations

import pytest
import torch

from tests.interpreter.run_text import build
from tilesmith.interpreter.frame import prepare_function
from tilesmith.interpreter.observers import Sampling, TimeLimitError
from tilesmith.interpreter.run import run_prepared

COPY = """
  %end = full() {value=100} : i64[]
  grid([%zero], [%end]) {blocks=["t"]} (%b: i64[]) {
    %i = tile_index(%b) {block="t"} : i64[t]
    %v = load(%x, none, [%i]) : f32[t]
    store(%y, %v, none, [%i])
  }
"""
EVERY_THIRD = """
  %end = full() {value=100} : i64[]
  grid([%zero], [%end]) {blocks=["t"]} (%b: i64[]) {
    %three = full() {value=3} : i64[t]
    %nothing = full() {value=0} : i64[t]
    %i = tile_index(%b) {block="t"} : i64[t]
    %r = elementwise(%i, %three) {fn="mod"} : i64[t]
    %m = elementwise(%r, %nothing) {fn="eq"} : bool[t]
    %v = load(%x, none, [%i]) : f32[t]
    store(%y, %v, %m, [%i])
  }
"""
FOREVER = """
  %end = full() {value=100} : i64[]
  grid([%zero], [%end]) {blocks=["t"]} (%b: i64[]) {
    %r = while(%zero) : i64[] (%n: i64[]) {
      %c = elementwise(%zero, %one) {fn="lt"} : bool[]
      yield(%c)
    } (%k: i64[]) {
      %next = elementwise(%k, %one) {fn="add"} : i64[]
      yield(%next)
    }
  }
"""


def run(body: str, sampling: Sampling, block: int = 8) -> tuple[torch.Tensor, torch.Tensor]:
    """What was written, and the mask of it."""
    x, y = torch.arange(1.0, 101.0), torch.zeros(100)
    arguments = {"x": x, "y": y}
    prepared = prepare_function(build(body, arguments, {"t": block}))
    run_prepared(prepared, arguments, {"t": block}, sampling=sampling)
    return y, sampling.mask_of(y)


@pytest.mark.parametrize("count", [2, 3, 8, 13, 50])
def test_the_first_and_the_last_program_are_always_among_them(count: int) -> None:
    sampling = Sampling(count, seed=1)
    y, mask = run(COPY, sampling)
    assert sampling.num_programs == [13]
    assert len(set(sampling.done[0])) == min(count, 13)
    assert mask[0]
    assert mask[99]
    assert sampling.is_complete == (count >= 13)
    assert torch.equal(y != 0, mask)


def test_seeds_choose() -> None:
    chosen = [Sampling(5, seed=seed) for seed in (1, 1, 2)]
    for sampling in chosen:
        run(COPY, sampling)
    assert chosen[0].done == chosen[1].done != chosen[2].done


def test_a_second_run_takes_the_programs_of_the_first() -> None:
    first = Sampling(5, seed=3)
    run(COPY, first)
    again = Sampling(5, chosen=first.done)
    run(COPY, again)
    assert again.done == first.done


def test_masked_lanes_are_not_noted() -> None:
    y, mask = run(EVERY_THIRD, Sampling())
    assert mask.nonzero().flatten().tolist() == list(range(0, 100, 3))
    assert torch.equal(y != 0, mask)


@pytest.mark.parametrize("block", [1, 7, 100, 128])
def test_all_programs_without_a_number(block: int) -> None:
    sampling = Sampling()
    y, mask = run(COPY, sampling, block)
    assert sampling.is_complete
    assert mask.all()
    assert y.tolist() == list(range(1, 101))


def test_a_sample_ends_early_and_a_complete_run_gives_up() -> None:
    sampling = Sampling(13, time_limit_s=1e-9)
    # The hard limit is not the subject here.
    sampling.check_time = lambda: None  # type: ignore[method-assign]
    _, mask = run(COPY, sampling)
    assert len(sampling.done[0]) == 2
    assert not sampling.is_complete
    assert int(mask.sum()) == 8 + 4
    with pytest.raises(TimeLimitError, match="longer than"):
        run(COPY, Sampling(None, time_limit_s=1e-9))


def test_loops_that_never_end_are_left() -> None:
    with pytest.raises(TimeLimitError):
        run(FOREVER, Sampling(4, time_limit_s=0.01))
