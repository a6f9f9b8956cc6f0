"""What an index tells apart: programs and lanes that differ in it never name one element.

An index is a sum of variables (lanes, first positions of tiles, other scalars), each times a
constant. As with the digits of a number, the sum tells all of them apart where each constant is
larger than all that those below it can add up to.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from math import inf

from tilesmith.analysis.affine import AffineIndex, find_affine
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import BlockSize
from tilesmith.ir.ops.shape import Broadcast
from tilesmith.ir.types import Dim
from tilesmith.ir.values import Value


@dataclass(frozen=True)
class Steps:
    """What the first position of a tile runs over."""

    block: str
    """Empty for an axis of plain indices."""
    extent: int | None
    """From the first to the last position; None where it is not constant."""
    parent: Value | None = None
    """Where the tile begins that the loop runs over: other tiles have other positions."""


@dataclass(frozen=True)
class Surroundings:
    """What is known of the values that the indices of one grid are made of."""

    definitions: Mapping[Value, Operation]
    varying: Collection[Value]
    """All that is not the same in every program, at any time."""
    steps: Mapping[Value, Steps]
    """By the arguments of the grid and of the loops in it."""
    sizes: Mapping[str, int]
    """Of blocks, as far as they are known."""

    def within(self, args: Collection[Value]) -> Surroundings:
        """The same where these arguments have one value each."""
        steps = {
            arg: replace(steps, parent=None) if steps.parent in args else steps
            for arg, steps in self.steps.items()
            if arg not in args
        }
        varying = frozenset(self.varying) - frozenset(args)
        return replace(self, steps=steps, varying=varying)


@dataclass(frozen=True)
class _Digit:
    factor: int
    extent: int | None
    """How many values there are, at most."""
    arg: Value | None = None
    lane: int | None = None


def find_told_apart(index: Value, where: Surroundings) -> frozenset[Value | int]:
    """Arguments of loops, and axes of the index, in which two that name one element agree."""
    forms = _summands(index, where.definitions)
    digits = list(_digits(forms, where)) if forms is not None else []
    if not _are_separate(digits):
        return frozenset()
    lanes = [digit.lane for digit in digits if digit.lane is not None]
    return frozenset([*lanes, *(arg for d in digits for arg in _lineage(d.arg, where))])


def _lineage(arg: Value | None, where: Surroundings) -> Iterator[Value]:
    while arg is not None:
        yield arg
        arg = where.steps[arg].parent


def _are_separate(digits: list[_Digit]) -> bool:
    reach = 0.0
    for digit in sorted(digits, key=lambda digit: abs(digit.factor)):
        if abs(digit.factor) <= reach:
            return False
        reach += abs(digit.factor) * (inf if digit.extent is None else max(digit.extent - 1, 0))
    return True


def _summands(value: Value, definitions: Mapping[Value, Operation]) -> list[AffineIndex] | None:
    """Forms along one axis each that add up to the value."""
    form = find_affine(value, definitions)
    if form is not None:
        return [form]
    op = definitions.get(value)
    if isinstance(op, Broadcast) or (isinstance(op, Cast) and op.x.tile.dtype.is_integer):
        return _summands(op.x, definitions)
    if not isinstance(op, Elementwise) or op.fn != "add":
        return None
    parts = [_summands(arg, definitions) for arg in op.args]
    return None if None in parts else [form for part in parts if part for form in part]


def _digits(forms: list[AffineIndex], where: Surroundings) -> Iterator[_Digit]:
    base: dict[Value, int] = {}
    lanes: dict[int, tuple[Dim, int]] = {}
    for form in forms:
        for value, factor in form.base:
            base[value] = base.get(value, 0) + factor
        if form.axis is not None and form.dim is not None:
            lanes[form.axis] = form.dim, lanes.get(form.axis, (form.dim, 0))[1] + form.scale
    for axis, (dim, factor) in lanes.items():
        arg = _tile_begin(dim, factor, base, where)
        if arg is not None:
            # The tiles of a loop lie side by side: position and lane are one number.
            del base[arg]
            yield _Digit(factor, where.steps[arg].extent, arg, axis)
        elif factor:
            yield _Digit(factor, _size(dim, where), lane=axis)
    for value, factor in base.items():
        if factor and value in where.varying:
            arg = _loop_argument(value, where)
            yield _Digit(factor, where.steps[arg].extent if arg else None, arg)


def _tile_begin(
    dim: Dim, factor: int, base: Mapping[Value, int], where: Surroundings
) -> Value | None:
    """Where the tile begins whose lanes an axis has."""
    for value, other in base.items():
        steps = where.steps.get(value)
        if steps and steps.block and Dim.of(steps.block) == dim and other == factor != 0:
            return value
    return None


def _loop_argument(value: Value, where: Surroundings) -> Value | None:
    """The argument that a scalar is, or numbers the tiles of: ``tile.id`` is begin // size."""
    if value in where.steps:
        return value
    op = where.definitions.get(value)
    if not isinstance(op, Elementwise) or op.fn != "floordiv":
        return None
    begin, size = op.args[0], where.definitions.get(op.args[1])
    steps = where.steps.get(begin)
    if steps is None or steps.parent is not None or not isinstance(size, BlockSize):
        return None
    return begin if size.block == steps.block else None


def _size(dim: Dim, where: Surroundings) -> int | None:
    return dim.constant if dim.symbol is None else where.sizes.get(dim.symbol)
