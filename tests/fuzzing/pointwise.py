"""Functions of one element each: how a kernel writes them, and what they do to bounds of errors.

The text of a function is also what eager torch evaluates: on empty tensors it gives the type of the
result, and on integers the result itself. Only results in floats need a rule of their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from tests.fuzzing.tracked import Tracked, cast, exactly, known, rounded

Rule = Callable[..., Tracked]
FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
INTEGERS = (torch.int32, torch.int64, torch.int8, torch.uint8, torch.int16)
EIGHT_BITS = (torch.float8_e4m3fn, torch.float8_e5m2)
"""Float types that are converted before anything else is done with them."""
BOOLS = (torch.bool,)
NUMBERS = FLOATS + INTEGERS
ANY = NUMBERS + BOOLS


@dataclass(frozen=True)
class Function:
    """One function.

    Attributes:
        text: with places for operands, valid in a kernel and in eager torch.
        kinds: the types each operand may have; a literal operand is written ``"number"``.
        rule: result in floats: operands converted to its type, and that type.
        compares: whether operands are converted to a type of their own, not the result's.
        converts: whether it is a conversion and nothing else.
    """

    text: str
    kinds: tuple[tuple[torch.dtype, ...], ...]
    rule: Rule | None = None
    compares: bool = False
    converts: bool = False


def has_rule(function: Function) -> bool:
    """Whether bounds of results in floats are known."""
    return function.rule is not None or function.converts


@cache
def result_dtype(text: str, operands: tuple[tuple[Any, bool], ...]) -> torch.dtype | None:
    """What eager torch makes of operands: each a type (or int, float) and whether it is 0-d."""
    values = [
        kind(1) if kind in (int, float) else torch.ones([] if is_scalar else [1], dtype=kind)
        for kind, is_scalar in operands
    ]
    try:
        return evaluate_text(text, values).dtype
    except (RuntimeError, TypeError):
        return None  # eager torch has no such function of these types


def evaluate_text(text: str, values: Sequence[Any]) -> torch.Tensor:
    """Run the text as eager torch."""
    names = {f"v{n}": value for n, value in enumerate(values)}
    return eval(text.format(*names), {"torch": torch, **names})


def evaluate(function: Function, operands: Sequence[Tracked | int | float], dtype: Any) -> Tracked:
    """The result with its bound."""
    if function.compares:
        return _compare(function, operands)
    if function.converts and isinstance(operands[0], Tracked):
        return cast(operands[0], dtype)
    if dtype.is_floating_point:
        assert function.rule is not None, function
        return function.rule(*(_converted(x, dtype) for x in operands), dtype)
    values = [x.value if isinstance(x, Tracked) else x for x in operands]
    error = sum((x.error for x in operands if isinstance(x, Tracked)), torch.zeros([]))
    found = evaluate_text(function.text, values)
    return known(found, error.expand(found.shape))


def _converted(x: Tracked | int | float, dtype: torch.dtype) -> Tracked:
    if isinstance(x, Tracked):
        return cast(x, dtype)
    return Tracked(torch.tensor(float(x)).double(), torch.zeros([]).double(), dtype)


def _compare(function: Function, operands: Sequence[Tracked | int | float]) -> Tracked:
    plain: list[Any] = [x.value.to(x.dtype) if isinstance(x, Tracked) else x for x in operands]
    common = torch.result_type(*plain)
    left, right = (
        cast(x if isinstance(x, Tracked) else exactly(torch.tensor(x, dtype=common)), common)
        for x in operands
    )
    found = evaluate_text(function.text, [left.value, right.value])
    error = left.error + right.error
    # The difference of two infinities is NaN.
    unsure = (error > 0) & ~((left.value.double() - right.value.double()).abs() > error)
    return known(found, unsure.double())


def _add(x: Tracked, y: Tracked, dtype: torch.dtype) -> Tracked:
    return rounded(x.value + y.value, x.error + y.error, dtype)


def _sub(x: Tracked, y: Tracked, dtype: torch.dtype) -> Tracked:
    return rounded(x.value - y.value, x.error + y.error, dtype)


def _mul(x: Tracked, y: Tracked, dtype: torch.dtype) -> Tracked:
    error = _times(x.value.abs(), y.error) + _times(y.value.abs() + y.error, x.error)
    return rounded(x.value * y.value, error, dtype)


def _times(size: torch.Tensor, error: torch.Tensor) -> torch.Tensor:
    """Nothing is known of a product with an unknown factor, even if the other is zero."""
    known = torch.where(error == 0, 0.0, size * error.nan_to_num(posinf=0.0))
    return torch.where(error.isinf(), math.inf, known)


def _div(x: Tracked, y: Tracked, dtype: torch.dtype) -> Tracked:
    least = y.value.abs() - y.error
    quotient = x.value / torch.where(y.value == 0, 1.0, y.value)
    error = (x.error + _times(quotient.abs(), y.error)) / least.clamp(min=1e-30)
    return rounded(quotient, torch.where(least <= 0, math.inf, error), dtype)


def _choose(condition: Tracked, x: Tracked, y: Tracked, dtype: torch.dtype) -> Tracked:
    is_first = condition.value != 0
    value = torch.where(is_first, x.value, y.value)
    error = torch.where(is_first, x.error, y.error) + condition.error
    return Tracked(value, error, dtype)


def _lipschitz(function: Callable[..., torch.Tensor], constant: float) -> Rule:
    """A function rounded not at all, whose slope is at most ``constant``."""

    def rule(*operands: Any) -> Tracked:
        *inputs, dtype = operands
        error = sum((x.error for x in inputs), torch.zeros([]))
        return Tracked(function(*(x.value for x in inputs)), error * constant, dtype)

    return rule


def _smooth(function: Callable[[torch.Tensor], torch.Tensor]) -> Rule:
    """A monotonic function of library quality."""

    def rule(x: Tracked, dtype: torch.dtype) -> Tracked:
        error = x.error.nan_to_num(posinf=0.0)
        value = function(x.value)
        ends = [(function(x.value + step) - value).abs() for step in (error, -error)]
        bound = torch.maximum(*ends).nan_to_num(nan=math.inf)
        bound = torch.where(x.error == 0, 0.0, torch.where(x.error.isinf(), math.inf, bound))
        return rounded(value, bound, dtype, is_approximate=True)

    return rule


def _wave(function: Callable[[torch.Tensor], torch.Tensor]) -> Rule:
    def rule(x: Tracked, dtype: torch.dtype) -> Tracked:
        return rounded(function(x.value), x.error, dtype, is_approximate=True)

    return rule


def _stepped(function: Callable[[torch.Tensor], torch.Tensor]) -> Rule:
    """Floor and its kin: unknown where the argument may lie on either side of a step."""

    def rule(x: Tracked, dtype: torch.dtype) -> Tracked:
        error = x.error.nan_to_num(posinf=1.0)
        unsure = (error > 0) & (function(x.value - error) != function(x.value + error))
        return Tracked(function(x.value), torch.where(unsure, math.inf, 0.0).double(), dtype)

    return rule


def _remainder(
    function: Callable[..., torch.Tensor],
    rounding: Callable[[torch.Tensor], torch.Tensor],
    divisor: int,
) -> Rule:
    """What a quotient rounded to an integer leaves: unknown where that may be either of two."""

    def rule(x: Tracked, dtype: torch.dtype) -> Tracked:
        error = x.error.nan_to_num(posinf=0.0)
        ends = [rounding((x.value + step) / divisor) for step in (error, -error)]
        unsure = x.error.isinf() | ((error > 0) & (ends[0] != ends[1]))
        bound = torch.where(unsure, math.inf, error)
        return rounded(function(x.value, divisor), bound, dtype)

    return rule


def _via(narrow: torch.dtype) -> Rule:
    """Rounded to a narrow type on the way."""
    return lambda x, dtype: cast(rounded(x.value, x.error, narrow), dtype)


TWO = (ANY, ANY)
ARITHMETIC = {
    "add": Function("{0} + {1}", TWO, _add),
    "sub": Function("{0} - {1}", (NUMBERS, NUMBERS), _sub),
    "mul": Function("{0} * {1}", TWO, _mul),
    "maximum": Function(
        "torch.maximum({0}, {1})", (NUMBERS, NUMBERS), _lipschitz(torch.maximum, 1)
    ),
    "minimum": Function(
        "torch.minimum({0}, {1})", (NUMBERS, NUMBERS), _lipschitz(torch.minimum, 1)
    ),
    "div": Function("{0} / {1}", (NUMBERS, NUMBERS), _div),
}
COMPARISONS = {
    name: Function(f"{{0}} {name} {{1}}", (NUMBERS, NUMBERS), compares=True)
    for name in ("<", "<=", "==", "!=", ">", ">=")
}
LOGIC = {
    "and": Function("{0} & {1}", (INTEGERS + BOOLS, INTEGERS + BOOLS)),
    "or": Function("{0} | {1}", (INTEGERS + BOOLS, INTEGERS + BOOLS)),
    "xor": Function("{0} ^ {1}", (INTEGERS + BOOLS, INTEGERS + BOOLS)),
}
CHOICE = {"where": Function("torch.where({0}, {1}, {2})", (BOOLS, ANY, ANY), _choose)}
OF_ONE = {
    "neg": Function("-{0}", (NUMBERS,), _lipschitz(torch.neg, 1)),
    "abs": Function("torch.abs({0})", (NUMBERS,), _lipschitz(torch.abs, 1)),
    "relu": Function("torch.relu({0})", (FLOATS,), _lipschitz(torch.relu, 1)),
    "not": Function("~{0}", (INTEGERS + BOOLS,)),
    "logical_not": Function("torch.logical_not({0})", (INTEGERS + BOOLS,)),
    "shift": Function("{0} >> 1", (INTEGERS,)),
    "left": Function("{0} << 2", (INTEGERS,)),
    "floor": Function("torch.floor({0})", (FLOATS,), _stepped(torch.floor)),
    "trunc": Function("torch.trunc({0})", (FLOATS,), _stepped(torch.trunc)),
    "exp": Function("torch.exp({0})", (FLOATS,), _smooth(torch.exp)),
    "tanh": Function("torch.tanh({0})", (FLOATS,), _smooth(torch.tanh)),
    "sigmoid": Function("torch.sigmoid({0})", (FLOATS,), _smooth(torch.sigmoid)),
    "sin": Function("torch.sin({0})", (FLOATS,), _wave(torch.sin)),
    "clamp": Function(
        "torch.clamp({0}, -3, 5)", (NUMBERS,), _lipschitz(lambda x: x.clamp(-3, 5), 1)
    ),
}
DIVISOR = "(({1} & 6) + 3)"
"""Made of any integer: never zero, and never -1, which the least integer cannot be divided by."""
DIVISIONS = {
    "third": Function("{0} // 3", (INTEGERS,)),
    "rest": Function("{0} % 5", (NUMBERS,), _remainder(torch.remainder, torch.floor, 5)),
    "low_rest": Function("{0} % -3", (NUMBERS,), _remainder(torch.remainder, torch.floor, -3)),
    "low_fourth": Function("{0} // -4", (INTEGERS,)),
    "quotient": Function(f"{{0}} // {DIVISOR}", (INTEGERS, INTEGERS)),
    "modulus": Function(f"{{0}} % {DIVISOR}", (INTEGERS, INTEGERS)),
    "low_modulus": Function(f"{{0}} % -{DIVISOR}", (INTEGERS, INTEGERS)),
    "cut": Function("torch.div({0}, 3, rounding_mode='trunc')", (INTEGERS,)),
    "fmod": Function("torch.fmod({0}, 5)", (NUMBERS,), _remainder(torch.fmod, torch.trunc, 5)),
    "shift_by": Function("{0} >> ({1} & 3)", (INTEGERS, INTEGERS)),
}
CASTS = {
    f"to_{dtype}": Function(f"{{0}}.to({dtype})", (ANY + EIGHT_BITS,), converts=True)
    for dtype in ANY
}
ROUNDINGS = {
    f"via_{dtype}": Function(f"{{0}}.to({dtype}).to(torch.float32)", (FLOATS,), _via(dtype))
    for dtype in EIGHT_BITS
}
FUNCTIONS: dict[str, Function] = {
    **ARITHMETIC, **COMPARISONS, **LOGIC, **CHOICE, **OF_ONE, **DIVISIONS, **CASTS, **ROUNDINGS,
}  # fmt: skip
