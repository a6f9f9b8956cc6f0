"""Readers, guards and tensors made from launch expressions."""

from __future__ import annotations

import pytest
import torch

from tilesmith.artifacts import LaunchParameter
from tilesmith.runtime.arguments import (
    compile_choice,
    compile_guard,
    compile_reader,
    make_launch_tensor,
)


def test_reader_gives_every_expression_in_order() -> None:
    read = compile_reader(["x", "xs", "alpha"], ["x.size(0)", "xs[1]", "float(alpha)", "x"])
    x, xs = torch.zeros(3, 4), [1, 2]
    size, item, number, same = read(x, xs, 2)
    assert (size, item, number) == (3, 2, 2.0)
    assert isinstance(number, float)
    assert same is x


def test_reader_of_nothing() -> None:
    assert compile_reader([], [])() == ()
    assert compile_reader(["x"], ["x"])(5) == (5,)


def test_reader_reaches_constants() -> None:
    module = {"TABLE": 7}
    read = compile_reader(["x"], ["__constants__[0]['TABLE']", "x"], [module])
    assert read(1) == (7, 1)
    module["TABLE"] = 8
    assert read(1) == (8, 1), "read at each launch, not when compiled"


def test_no_guard_is_no_function() -> None:
    assert compile_guard(["x"], []) is None


def test_guard_checks_every_expression() -> None:
    holds = compile_guard(["n", "x"], [("n", 3), ("x.shape", (2, 5))])
    assert holds is not None
    assert holds(3, torch.zeros(2, 5))
    assert not holds(4, torch.zeros(2, 5))
    assert not holds(3, torch.zeros(2, 6))


def test_a_failing_guard_spares_the_later_ones() -> None:
    holds = compile_guard(["x"], [("x.__class__", list), ("len(x)", 2)])
    assert holds is not None
    assert holds([1, 2])
    assert not holds(None), "len(None) would raise"


def test_guard_reaches_constants() -> None:
    module = {"SCALE": 2.0}
    holds = compile_guard([], [("__constants__[0]['SCALE']", 2.0)], [module])
    assert holds is not None
    assert holds()
    module["SCALE"] = 3.0
    assert not holds()


def test_the_first_fitting_launcher_runs() -> None:
    taken: list[str] = []
    for_five = compile_choice(
        ["n", "x"],
        [("n", 5)],
        (),
        lambda n, x: taken.append("five"),
        lambda n, x: taken.append("no"),
    )
    for_list = compile_choice(
        ["n", "x"],
        [("x.__class__", list), ("len(x)", 2)],
        (),
        lambda n, x: taken.append("list"),
        for_five,
    )
    for n, x in ((5, [1, 2]), (5, None), (5, [1]), (4, None)):
        for_list(n, x)
    assert taken == ["list", "five", "five", "no"]


def test_no_guards_need_no_choice() -> None:
    assert compile_choice(["x"], [], (), print, print) is print


COUNTER = LaunchParameter("c", "torch.zeros(1, dtype=torch.int32, device=x.device)", True, "i32")
SCRATCH = LaunchParameter(
    "s", "torch.empty((3, 5), dtype=torch.float32, device=xs[0].device)", True, "f32"
)


@pytest.mark.parametrize(
    ("parameter", "shape", "dtype"),
    [(COUNTER, (1,), torch.int32), (SCRATCH, (3, 5), torch.float32)],
)
def test_they_are_made_wherever_asked_for(parameter, shape, dtype):
    for device in ("cpu", "meta"):
        made = make_launch_tensor(parameter, device)
        assert (tuple(made.shape), made.dtype, made.device.type) == (shape, dtype, device)
    name, count = parameter.made_form
    assert (getattr(torch, name), count) == (dtype, made.numel())


def test_only_counters_start_at_zero():
    assert (COUNTER.is_made_at_launch, COUNTER.is_zeroed) == (True, True)
    assert (SCRATCH.is_made_at_launch, SCRATCH.is_zeroed) == (True, False)
    argument = LaunchParameter("x", "x", True, "f32")
    assert (argument.is_made_at_launch, argument.is_zeroed) == (False, False)
    assert torch.equal(make_launch_tensor(COUNTER, "cpu"), torch.zeros(1, dtype=torch.int32))
