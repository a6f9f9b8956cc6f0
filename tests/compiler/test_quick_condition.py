"""One condition stands for checks of a launch: it never holds where one of them would raise."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tilesmith.compiler.launch_guards.checks import _REQUIRE, _STATIC_TENSOR, _TENSOR
from tilesmith.compiler.launch_guards.quick import Known, _condition, guarded_lines

STATEMENTS = (
    "require_tensor('x', x, torch.float32, (4, 8), (8, 1))",
    "require('tensors on one device', (x.device, y.device), (x.device,) * 2)",
    "require('n', n, 4)",
    "require('mode', mode, 'sum')",
    "require('x.is_cpu', x.is_cpu, True)",
    "require('(x.data_ptr() | y.data_ptr()) % 4', (x.data_ptr() | y.data_ptr()) % 4, 0)",
    "require('scale', scale, 0.0)",
)
GOOD: dict[str, Any] = {
    "x": torch.zeros(4, 8), "y": torch.zeros(3), "n": 4, "mode": "sum", "scale": 0.0,
}  # fmt: skip


def make_check(*, is_slow: bool = True) -> Any:
    """The checks as a function; without the slow ones where the condition holds or not."""
    lines = list(guarded_lines(STATEMENTS))
    body = "\n".join(f"    {line}" for line in lines)
    scope: dict[str, Any] = {"torch": torch}
    exec(f"{_REQUIRE}\n{_STATIC_TENSOR}\ndef check({', '.join(GOOD)}):\n{body}\n", scope)
    if not is_slow:
        scope["require"] = scope["require_tensor"] = lambda *_: None
    return scope["check"]


def test_what_it_was_made_for_passes() -> None:
    make_check()(**GOOD)


@pytest.mark.parametrize(
    "change",
    [
        {"x": torch.zeros(4, 8, dtype=torch.float64)}, {"x": torch.zeros(4, 9)},
        {"x": torch.zeros(8, 4).T}, {"x": torch.zeros(4, 8, device="meta")}, {"n": 5}, {"n": True},
        {"n": 4.0}, {"mode": "mean"}, {"mode": None}, {"y": torch.zeros(3, device="meta")},
        {"x": torch.zeros(8, 8)[::2]}, {"scale": 1.0}, {"scale": 0},
    ],
    ids=str,
)  # fmt: skip
def test_anything_else_is_refused_with_its_reason(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="this module was made for"):
        make_check()(**{**GOOD, **change})


def test_checks_of_a_call_that_fits_are_not_called() -> None:
    lines = list(guarded_lines(STATEMENTS))
    assert lines[0] == "if not ("
    # A float is asked for by its own check: 0.0 and -0.0 are equal.
    assert [line for line in lines if line.startswith("require")] == [STATEMENTS[-1]]
    make_check(is_slow=False)(**{**GOOD, "n": 7})  # only the slow checks have an opinion


def test_numbers_and_types_are_part_of_the_condition() -> None:
    checks = [
        "require('scale', scale, 0.125)",
        "require('kind', kind, torch.float32)",
        "require('_launcher.num_sms(x.get_device())', _launcher.num_sms(x.get_device()), 132)",
    ]
    names = {"x.get_device()": "_device"}
    lines = list(guarded_lines(checks, Known(names=names), "check_all()"))
    assert lines == [
        "if not (",
        "    type(scale) is float and scale == 0.125",
        "    and kind is torch.float32",
        "    and _launcher.num_sms(_device) == 132",
        "):",
        "    check_all()",
    ]


@pytest.mark.parametrize("shape", [(4, 8), (2, 3, 5), (7,)])
def test_sizes_that_were_compared_are_not_asked_for(shape: tuple[int, ...]) -> None:
    x = torch.zeros(shape)
    check = f"require_tensor('x', x, torch.float32, {shape}, {x.stride()})"
    both = [_condition(check, Known()), _condition(check, Known(shapes={"x"}))]
    assert [condition.count("shape") for condition in both] == [1, 0]
    turned = torch.zeros(shape[::-1]).permute(*range(len(shape))[::-1])
    for other in (x, x.double(), turned):
        is_same = other.dtype == x.dtype and other.stride() == x.stride()
        scope = {"x": other, "torch": torch}
        assert [bool(eval(text, scope)) for text in both] == [is_same] * 2


@pytest.mark.parametrize(
    ("shape", "strides"), [((1, 8), (8, 1)), ((4, 8), (1, 4)), ((4, 8), (16, 1)), ((0, 8), (8, 1))]
)
def test_strides_are_compared_where_contiguity_does_not_tell_them(shape: Any, strides: Any) -> None:
    text = _condition(f"require_tensor('x', x, torch.float32, {shape}, {strides})", Known())
    assert f"x.stride() == {strides}" in text


def runtime_check(sizes: str, strides: str) -> Any:
    checks = [
        f"require_tensor('x', x, torch.float32, {sizes}, {strides}, 60)",
        "require('x.size(1)', x.size(1), y.size(0))",
    ]
    body = "\n".join(f"    {line}" for line in guarded_lines(checks))
    scope: dict[str, Any] = {"torch": torch}
    exec(f"{_REQUIRE}\n{_TENSOR}\ndef check(x, y):\n{body}\n", scope)
    return scope["check"]


RUNTIME = [
    torch.zeros(4, 8), torch.zeros(7, 8), torch.zeros(1, 8), torch.zeros(8, 4).T, torch.zeros(4, 9),
    torch.zeros(4, 16)[:, ::2], torch.zeros(8, 8)[::2], torch.zeros(5, 8).double(), torch.zeros(8),
    torch.zeros(8, 8), torch.zeros(0, 8), torch.zeros(2, 4, 8),
    torch.zeros(4, 8).as_strided((4, 1), (1, 7)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("sizes", "strides"),
    [
        ("(None, None)", "(None, 1)"), ("(None, 8)", "(None, 1)"), ("(4, 8)", "(None, None)"),
        ("(None, 1)", "(None, 1)"), ("(4, None)", "(8, 1)"), ("(None, None)", "(1, None)"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("x", RUNTIME, ids=lambda x: f"{tuple(x.shape)} {x.stride()}")
def test_of_runtime_sizes_it_says_no_more_than_the_checks(
    x: torch.Tensor, sizes: str, strides: str
) -> None:
    check = f"require_tensor('x', x, torch.float32, {sizes}, {strides}, 60)"
    text = "\n".join(guarded_lines([check]))
    if not text.startswith("if not ("):
        return  # each call asks the check itself
    condition = text.partition("if not (")[2].partition("\n):")[0]
    scope: dict[str, Any] = {"torch": torch, "x": x}
    exec(_TENSOR, scope)
    if eval(f"({condition})", scope):
        eval(check, scope)  # raises nothing


@pytest.mark.parametrize("strides", ["(None, 1)", "(1, None)"])
def test_a_tensor_of_another_rank_is_refused_before_its_sizes_are_asked_for(strides: str) -> None:
    check = runtime_check("(None, None)", strides)
    with pytest.raises(ValueError, match=r"this module was made for x: torch\.float32"):
        check(torch.zeros(8), torch.zeros(8))


def test_a_call_with_runtime_sizes_that_fits_is_checked_by_the_condition_alone() -> None:
    def fail(*_: Any) -> None:
        raise AssertionError

    check = runtime_check("(None, None)", "(None, 1)")
    check.__globals__["require_tensor"] = check.__globals__["require"] = fail
    check(torch.zeros(4, 8), torch.zeros(8))
    with pytest.raises(AssertionError):
        check(torch.zeros(4, 8), torch.zeros(7))
