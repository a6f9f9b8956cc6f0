"""Functions that combine elements, given to ``hl.reduce`` and ``hl.associative_scan``.

All are associative. Sums of products have bounds for any grouping: the same function of the sizes
of its operands, without any minus, is at least as large as whatever a kernel has on the way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tests.fuzzing.pointwise import BOOLS, INTEGERS, NUMBERS
from tests.fuzzing.program import Meaning, Value
from tests.fuzzing.statements import meaning_of
from tests.fuzzing.tracked import Tracked, is_quantised, known, rounded
from tilesmith.numerics.tolerance import (
    accumulation_dtype,
    smallest_spacing,
    unit_roundoff,
)

Kinds = tuple[torch.dtype, ...]
ROUNDINGS = 4
"""At most so many in one combination."""


@dataclass(frozen=True)
class Combination:
    """A combine function.

    Attributes:
        text: of the function, as a kernel writes it: of elements ``a`` and ``b``, or of tuples.
        kinds: the types each tensor may have; the second has the first one's where both may.
        identity: one number for each tensor, or none.
        sizes: the text without minus; none where elements are chosen, not computed.
        is_commutative: whether ``hl.reduce`` may have it.
    """

    text: str
    kinds: tuple[Kinds, ...]
    identity: tuple[int, ...] = ()
    sizes: str = ""
    is_commutative: bool = True


_BEST = "(a[0] > b[0]) | ((a[0] == b[0]) & (a[1] < b[1]))"
BEST = "best"
COMBINATIONS = {
    "sum": Combination("lambda a, b: a + b", (NUMBERS,), (0,), "lambda a, b: a + b"),
    "larger": Combination("lambda a, b: torch.where(a > b, a, b)", (NUMBERS,)),
    "least": Combination("lambda a, b: torch.minimum(a, b)", (NUMBERS,)),
    "product": Combination("lambda a, b: a * b", (NUMBERS,), (1,), "lambda a, b: a * b"),
    "shifted": Combination("lambda a, b: a + b - 3", (NUMBERS,), (3,), "lambda a, b: a + b + 3"),
    "circle": Combination(
        "lambda a, b: a + b + a * b", (NUMBERS,), (0,), "lambda a, b: a + b + a * b"
    ),
    "xor": Combination("lambda a, b: a ^ b", (INTEGERS + BOOLS,), (0,)),
    "modulo": Combination("lambda a, b: (a % 7) * (b % 7) % 7", (INTEGERS,)),
    "totals": Combination(
        "lambda a, b: (a[0] + b[0], a[1] * b[1])",
        (NUMBERS, NUMBERS),
        (0, 1),
        "lambda a, b: (a[0] + b[0], a[1] * b[1])",
    ),
    "complex": Combination(
        "lambda a, b: (a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0])",
        (NUMBERS, NUMBERS),
        (1, 0),
        "lambda a, b: (a[0] * b[0] + a[1] * b[1], a[0] * b[1] + a[1] * b[0])",
    ),
    BEST: Combination(
        f"lambda a, b: (torch.where({_BEST}, a[0], b[0]), torch.where({_BEST}, a[1], b[1]))",
        (NUMBERS, INTEGERS),
    ),
    "affine": Combination(
        "lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1])",
        (NUMBERS, NUMBERS),
        sizes="lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1])",
        is_commutative=False,
    ),
    "segments": Combination(
        "lambda a, b: (torch.where(b[1], b[0], a[0] + b[0]), a[1] | b[1])",
        (NUMBERS, BOOLS),
        sizes="lambda a, b: (torch.where(b[1], b[0], a[0] + b[0]), a[1] | b[1])",
        is_commutative=False,
    ),
    "first": Combination(
        "lambda a, b: torch.where(a != 0, a, b)", (INTEGERS,), is_commutative=False
    ),
}


@dataclass(frozen=True)
class Combine:
    """``results = hl.associative_scan(function, operands, dim)``, or ``hl.reduce``.

    Attributes:
        axes: of the operands together.
        is_flat: whether the function takes all elements one by one.
        has_identity: whether the identity is given.
    """

    results: tuple[Value, ...]
    function: str
    operands: tuple[Value, ...]
    axes: tuple[str, ...]
    dim: int
    is_scan: bool
    reverse: bool = False
    is_flat: bool = False
    has_identity: bool = False

    def lines(self) -> list[str]:
        results = ", ".join(result.name for result in self.results)
        operands = _grouped([value.aligned(self.axes) for value in self.operands])
        text = COMBINATIONS[self.function].text
        if self.is_flat and len(self.operands) == 2:
            text = text.replace("a, b:", "p, q, r, s:")
            for pair, name in (("a[0]", "p"), ("a[1]", "q"), ("b[0]", "r"), ("b[1]", "s")):
                text = text.replace(pair, name)
        arguments = [text, operands, f"dim={self.dim}"]
        if self.has_identity:
            arguments.append(f"other={_grouped(COMBINATIONS[self.function].identity)}")
        arguments += ["reverse=True"] if self.reverse else []
        name = "associative_scan" if self.is_scan else "reduce"
        return [f"{results} = hl.{name}({', '.join(arguments)})"]

    def evaluate(self, meaning: Meaning) -> None:
        shape = [meaning.length(axis) for axis in self.axes]
        wholes: list[Tracked] = [
            meaning_of(value, self.axes, meaning).mapped(lambda x: x.expand(shape))
            for value in self.operands
        ]
        found = combined(self.function, wholes, self.dim, reverse=self.reverse)
        for result, whole in zip(self.results, found):
            meaning.values[result.name] = (
                whole if self.is_scan else whole.mapped(lambda x: x.select(self.dim, -1))
            )


def _grouped(parts: Sequence[Any]) -> str:
    return str(parts[0]) if len(parts) == 1 else f"({', '.join(map(str, parts))})"


def combined(name: str, xs: list[Tracked], dim: int, *, reverse: bool = False) -> list[Tracked]:
    """All elements up to each one combined, or from the last one back to each."""
    if not xs[0].value.size(dim):
        return xs
    if reverse:
        turned = [x.mapped(lambda part: part.flip(dim)) for x in xs]
        found = combined(name, turned, dim)
        return [x.mapped(lambda part: part.flip(dim)) for x in found]
    combination = COMBINATIONS[name]
    values = _running(combination.text, [x.value for x in xs], dim)
    unknown = sum((_spoilt(x, dim) for x in xs), torch.zeros([]))
    if name == BEST:
        return _best(xs, values, dim)
    if not combination.sizes:
        return [_chosen(x, value, dim) for x, value in zip(xs, values)]
    bounds = _bounds(combination.sizes, xs, dim)
    return [
        rounded(value, torch.where(unknown > 0, math.inf, bound), x.dtype)
        if x.dtype.is_floating_point
        else known(value, unknown)
        for x, value, bound in zip(xs, values, bounds)
    ]


def _running(text: str, xs: Sequence[torch.Tensor], dim: int) -> list[torch.Tensor]:
    """What a plain loop has after each element."""
    function: Callable[..., Any] = eval(text, {"torch": torch})
    lines = [tuple(x.select(dim, n) for x in xs) for n in range(xs[0].size(dim))]
    steps = [lines[0]]
    for line in lines[1:]:
        found = function(steps[-1], line) if len(xs) > 1 else (function(steps[-1][0], line[0]),)
        steps.append(found)
    return [torch.stack(list(line), dim) for line in zip(*steps)]


def _spoilt(x: Tracked, dim: int) -> torch.Tensor:
    """Where something before is unknown, or of no order: functions here are not made for NaN."""
    is_unknown = x.error.isinf() | ~x.value.isfinite() if x.dtype.is_floating_point else x.error > 0
    return is_unknown.double().cumsum(dim)


def _bounds(sizes: str, xs: list[Tracked], dim: int) -> list[torch.Tensor]:
    errors = [x.error.nan_to_num(posinf=0.0) for x in xs]
    plain = _running(sizes, [_size(x) for x in xs], dim)
    large = _running(sizes, [_size(x, error) for x, error in zip(xs, errors)], dim)
    # No group of elements has more than all of them where each has at least one.
    most = _running(sizes, [_size(x, error, 1.0) for x, error in zip(xs, errors)], dim)
    floats = [x for x in xs if x.dtype.is_floating_point]
    is_whole = is_quantised(1.0, *floats)
    small = sum((_small(x, dim) for x in floats), _vanishing(floats, dim))
    return [
        _bound(x, [*parts, small], ROUNDINGS * (x.value.size(dim) + 2), is_whole=is_whole)
        for x, *parts in zip(xs, plain, large, most)
    ]


def _small(x: Tracked, dim: int) -> torch.Tensor:
    """Where numbers have come whose products vanish in some order."""
    least = torch.finfo(x.dtype).smallest_normal ** 0.5
    return ((x.value != 0) & (x.value.abs() < least)).double().cumsum(dim)


def _vanishing(xs: list[Tracked], dim: int) -> torch.Tensor:
    """Where factors have come of which some are subnormal together; those of zero lose nothing."""
    least = torch.ones([], dtype=torch.float64)
    for x in xs:
        size = torch.where(x.value == 0, 1.0, x.value.abs().clamp(max=1))
        least = least * size.cumprod(dim)
    limit = max((torch.finfo(x.dtype).smallest_normal for x in xs), default=0.0)
    return (least < limit).double()


def _size(x: Tracked, error: torch.Tensor | float = 0.0, least: float = 0.0) -> torch.Tensor:
    return (x.value.abs() + error).clamp(min=least) if x.dtype.is_floating_point else x.value


def _bound(
    x: Tracked, parts: list[torch.Tensor], roundings: int, *, is_whole: bool
) -> torch.Tensor:
    plain, large, most, small = parts
    if not x.dtype.is_floating_point:
        return torch.zeros(plain.shape)
    unit = unit_roundoff(x.dtype)
    bound = large - plain + math.expm1(roundings * unit) * large
    least = smallest_spacing(x.dtype) + torch.finfo(accumulation_dtype(x.dtype)).smallest_normal
    lost = roundings * least * most
    bound = bound + torch.where(small > 0, lost, 0.0)
    bound = torch.where((most < 1 / unit) & is_whole, 0.0, bound)
    return torch.where(most < torch.finfo(x.dtype).max * 0.99, bound, math.inf)


def _chosen(x: Tracked, value: torch.Tensor, dim: int) -> Tracked:
    worst = torch.where(_spoilt(x, dim) > 0, math.inf, x.error.cummax(dim).values)
    if x.dtype.is_floating_point:
        return Tracked(value, worst, x.dtype)
    return known(value, worst)


def _best(xs: list[Tracked], values: list[torch.Tensor], dim: int) -> list[Tracked]:
    """The tag is unknown where an element with another one may be as good."""
    first, tag = xs
    count = first.value.size(dim)
    unsure = torch.zeros(values[1].shape)
    for last in range(count):
        seen = [part.narrow(dim, 0, last + 1) for part in (first.value.double(), first.error)]
        best, chosen = (part.narrow(dim, last, 1) for part in values)
        doubt = seen[1] + seen[1].amax(dim, keepdim=True)
        may_win = (doubt > 0) & (seen[0] + doubt >= best.double())
        is_other = tag.value.narrow(dim, 0, last + 1) != chosen
        unsure.narrow(dim, last, 1).copy_((may_win & is_other).any(dim, keepdim=True))
    return [
        _chosen(first, values[0], dim),
        known(values[1], unsure + _spoilt(tag, dim) + _spoilt(first, dim)),
    ]
