"""``check=True``: every access is checked for bounds and races before anything is touched."""

from __future__ import annotations

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith import exc


def gathered(x, positions):
    out = torch.empty([positions.size(0)])
    for tile in hl.tile(positions.size(0)):
        out[tile] = x[positions[tile]]  # the gather
    return out


def shifted(x):
    for tile in hl.tile(x.size(0) - 1):
        x[tile.index + 1] = x[tile] + 1  # the race
    return x


def line_of(comment: str) -> int:
    with open(__file__) as file:
        return next(n for n, line in enumerate(file, 1) if line.endswith(f"# {comment}\n"))


def test_what_is_in_bounds_is_computed():
    x, positions = torch.randn(10), torch.tensor([0, 9, 3, 3])
    assert torch.equal(helion.kernel(gathered, check=True)(x, positions), x[positions])


@pytest.mark.parametrize("wrong", [10, 1 << 40, -11])
def test_a_gather_out_of_bounds_is_told_at_its_line(wrong: int):
    x, positions = torch.randn(10), torch.tensor([0, 9, wrong])
    with pytest.raises(exc.OutOfBoundsAccess) as caught:
        helion.kernel(gathered, check=True)(x, positions)
    assert caught.value.loc is not None
    assert caught.value.loc.line == line_of("the gather")
    assert str(wrong) in str(caught.value)


@pytest.mark.parametrize("size", [3, 20, 5000])
def test_a_race_is_found_whatever_the_default_block_size(size: int):
    with pytest.raises(exc.RaceDetected) as caught:
        helion.kernel(shifted, check=True)(torch.zeros(size))
    assert caught.value.loc is not None
    assert caught.value.loc.line == line_of("the race")


def test_a_given_config_decides_what_can_race():
    whole = helion.Config(block_sizes=[32])
    helion.kernel(shifted, check=True, config=whole)(torch.zeros(20))
    with pytest.raises(exc.RaceDetected):
        helion.kernel(shifted, check=True, config=helion.Config(block_sizes=[8]))(torch.zeros(20))


def passed_on(x: torch.Tensor, flags: torch.Tensor) -> torch.Tensor:
    for i in hl.grid(x.size(0) - 1):
        while hl.atomic_add(flags, [i], 0, sem="acquire") == 0:
            pass
        x[i + 1] = x[i] + 1
        hl.atomic_xchg(flags, [i + 1], 1, sem="release")
    return x


def test_programs_that_wait_for_each_other_come_to_an_end():
    """Each waits for the one before it; one after the other they ended before, too."""
    flags = torch.zeros(8, dtype=torch.int32)
    flags[0] = 1
    x = helion.kernel(passed_on, check=True)(torch.zeros(8), flags)
    assert x.tolist() == list(range(8))


def test_programs_that_wait_for_ever_are_told():
    """Nobody sets the first flag; the interpreter never came back."""
    flags = torch.zeros(8, dtype=torch.int32)
    with pytest.raises(exc.ProgramsWaitForever, match="7 programs have begun and none can go on"):
        helion.kernel(passed_on, check=True)(torch.zeros(8), flags)


def test_checking_wins_over_the_backend():
    x, positions = torch.randn(4), torch.tensor([4])
    for backend in ("auto", "cpu", "triton", "reference"):
        kernel = helion.kernel(gathered, check=True, backend=backend)
        with pytest.raises(exc.OutOfBoundsAccess):
            kernel(x, positions)


def test_code_is_shown_as_without_checks():
    x, positions = torch.randn(4), torch.tensor([1])
    checked = helion.kernel(gathered, check=True).bind((x, positions))
    assert checked.to_triton_code() == helion.kernel(gathered).bind((x, positions)).to_triton_code()


def positive_sums(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(0)])
    for t in hl.tile(x.size(0)):
        total = x[t, :].sum(1)
        assert (total > 0).all(), "a sum is not positive"  # the assertion
        out[t] = total
    return out


def test_an_assertion_is_checked_at_its_line():
    good, bad = torch.ones(5, 3), torch.ones(5, 3)
    bad[4] = -1
    checked = helion.kernel(positive_sums, check=True, config=helion.Config(block_sizes=[2]))
    assert torch.equal(checked(good), good.sum(1))
    with pytest.raises(exc.DeviceAssertionFailed, match="a sum is not positive") as caught:
        checked(bad)
    assert isinstance(caught.value, AssertionError)
    assert caught.value.loc is not None
    assert caught.value.loc.line == line_of("the assertion")


def test_compiled_kernels_leave_assertions_out():
    bad = -torch.ones(5, 3)
    assert torch.equal(helion.kernel(positive_sums)(bad), bad.sum(1))
