"""Maxima that results do not depend on, though they are computed with: those of a stable softmax.

``exp(x - peak) / sum(exp(x - peak))`` is the same for every ``peak``. If peaks were shifted by any
amounts, other values would be shifted or scaled along, and stored ones would not change: then
no derivative goes through the peak. This is shown by giving each value its degree, op by op. In a
loop with a running maximum each turn has a shift of its own, and carried values follow the newest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import isclose, isinf, log
from typing import Any

from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation, Region, Trait
from tilesmith.ir.ops.control_flow import Grid, Loop, Yield
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import Full
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.reduction import Reduce
from tilesmith.ir.ops.shape import Broadcast, ExpandDims, Permute, Reshape
from tilesmith.ir.traversal import definitions, walk
from tilesmith.ir.types import Dim, Value

OLD, NEW = "old", "new"
"""The shifts before and after a turn; outside of loops there is only the new one."""


@dataclass(frozen=True)
class Degree:
    """How a value follows shifts: ``value + k * shift``, or ``value * exp(k * shift)``."""

    is_factor: bool
    powers: Mapping[str, float] = field(default_factory=dict[str, float])
    is_open: bool = False
    """Zeros, or what is not known yet: it fits any degree."""

    @property
    def is_none(self) -> bool:
        """Whether the value stays as it is."""
        return not self.powers and not self.is_open

    def scaled(self, factor: float) -> Degree:
        """The degree of a multiple of something shifted."""
        return _degree(self.is_factor, {s: k * factor for s, k in self.powers.items()})

    def plus(self, other: Degree, sign: float = 1.0) -> Degree:
        """Shifts that add up, or factors that are multiplied."""
        total = dict(self.powers)
        for symbol, power in other.powers.items():
            total[symbol] = total.get(symbol, 0.0) + sign * power
        return _degree(self.is_factor or other.is_factor, total)

    def same(self, other: Degree) -> bool:
        """Whether two values follow alike."""
        symbols = {*self.powers, *other.powers}
        pairs = [(self.powers.get(s, 0.0), other.powers.get(s, 0.0)) for s in symbols]
        is_kind = self.is_factor == other.is_factor or not symbols
        return is_kind and all(isclose(a, b, abs_tol=1e-9) for a, b in pairs)


NONE, OPEN = Degree(False), Degree(True, is_open=True)


def _degree(is_factor: bool, powers: Mapping[str, float]) -> Degree:
    left = {s: k for s, k in powers.items() if not isclose(k, 0.0, abs_tol=1e-9)}
    return Degree(is_factor, left) if left else NONE


class _DependsError(Exception):
    """A value that follows shifts in no known way."""


class _Proof:
    """Follows the shifts of one maximum through a grid."""

    def __init__(
        self, peak: Value, places: Mapping[Loop, int], known: Mapping[Value, Operation]
    ) -> None:
        self._peak = peak
        self._dims = [dim for dim in peak.tile.shape if not dim.is_one]
        self._places = places
        """The loops that carry the maximum, the outermost first, and at which place."""
        self._known = known
        self._degrees: dict[Value, Degree] = {}

    def holds(self, grid: Grid) -> bool:
        """Whether nothing that the grid stores depends on the maximum."""
        try:
            self._visit(grid.body)
        except _DependsError:
            return False
        return True

    def degree(self, value: Value) -> Degree:
        """How a value follows the maximum."""
        return self._degrees.get(value, NONE)

    def _visit(self, region: Region) -> None:
        for op in region.ops:
            if self._peak in op.results:
                self._degrees[self._peak] = Degree(False, {NEW: 1.0})
            elif isinstance(op, Loop):
                self._visit_loop(op)
            elif not isinstance(op, Yield):
                degrees = [self.degree(value) for value in op.operand_values()]
                if any(not degree.is_none for degree in degrees):
                    self._visit_dependent(op, degrees)
                else:
                    self._degrees.pop(next(iter(op.results), self._peak), None)

    def _visit_dependent(self, op: Operation, degrees: list[Degree]) -> None:
        rule = _RULES.get(type(op))
        is_effect = Trait.PURE not in op.traits
        if rule is None or is_effect or len(op.results) != 1:
            raise _DependsError
        degree = rule(self, op, degrees)
        if not degree.is_none:
            self._degrees[op.result] = degree

    def _visit_loop(self, op: Loop) -> None:
        bounds = (*op.begins, *op.ends, *op.steps)
        if any(not self.degree(value).is_none for value in bounds):
            raise _DependsError
        is_own = op in self._places
        found = [OPEN if is_own or self._is_zero(v) else self.degree(v) for v in op.init]
        for _ in range(2):
            before = [_renamed(d, NEW, OLD) if is_own else d for d in found]
            self._degrees.update(zip(op.carried, before))
            if is_own:
                self._degrees[op.carried[self._places[op]]] = Degree(False, {OLD: 1.0})
            self._visit(op.body)
            after = [self.degree(value) for value in op.body.yielded]
            is_settled = all(a.same(b) or b.is_open for a, b in zip(after, found))
            if not is_settled:
                raise _DependsError
            # A shift that only one turn has cannot be handed to the next.
            if any(OLD in degree.powers for degree in after):
                raise _DependsError
            is_inside = self._peak in {v for inner in walk(op.body) for v in inner.results}
            if is_inside and not is_own and any(not degree.is_none for degree in after):
                raise _DependsError
            found = [NONE if degree.is_open else degree for degree in after]
        if is_own and op is not next(iter(self._places)):
            self._check_entry(op, found)
        self._degrees.update(zip(op.results, found))

    def _check_entry(self, op: Loop, found: list[Degree]) -> None:
        """What a loop inside begins with follows the shift of the turn around it."""
        for value, degree in zip(op.init, found):
            before = self.degree(value)
            is_free = before.is_open or (before.is_none and self._is_zero(value))
            if not is_free and not before.same(_renamed(degree, NEW, OLD)):
                raise _DependsError

    def _is_zero(self, value: Value) -> bool:
        op = self._known.get(value)
        return isinstance(op, Full) and op.value == 0

    def is_shared(self, dim: Dim) -> bool:
        """Whether shifts differ along an axis."""
        return dim in self._dims

    def constant(self, value: Value) -> float | None:
        """The number that a tile is filled with."""
        op = self._known.get(value)
        while isinstance(op, (Broadcast, ExpandDims)):
            op = self._known.get(op.x)
        return float(op.value) if isinstance(op, Full) else None

    def is_same_under_shifts(self, value: Value, degree: Degree) -> bool:
        """Whether a number stays what it is: infinities under shifts, zeros under factors."""
        filled = self.constant(value)
        return filled is not None and (filled == 0 if degree.is_factor else isinf(filled))

    def is_limit_test(self, condition: Value) -> bool:
        """Whether it asks if something that follows shifts is a number that does not."""
        op = self._known.get(condition)
        args = op.args if isinstance(op, Elementwise) and op.fn in ("eq", "ne") else ()
        return any(not self.degree(value).is_none for value in args)


def _renamed(degree: Degree, old: str, new: str) -> Degree:
    powers = {new if symbol == old else symbol: k for symbol, k in degree.powers.items()}
    return Degree(degree.is_factor, powers, degree.is_open)


def _elementwise(proof: _Proof, op: Elementwise, degrees: list[Degree]) -> Degree:
    rule = _SCALAR_RULES.get(op.fn)
    if rule is None:
        raise _DependsError
    return rule(proof, op, degrees)


def _sum(proof: _Proof, op: Elementwise, degrees: list[Degree]) -> Degree:
    a, b = degrees
    if a.is_open or b.is_open:
        return b if a.is_open else a
    if a.is_factor or b.is_factor:
        return _agreed(degrees)
    return a.plus(b, -1.0 if op.fn == "sub" else 1.0)


def _agreed(degrees: list[Degree]) -> Degree:
    known = [degree for degree in degrees if not degree.is_open]
    if not known:
        return OPEN
    if not all(degree.same(known[0]) for degree in known):
        raise _DependsError
    return known[0]


def _product(proof: _Proof, op: Elementwise, degrees: list[Degree]) -> Degree:
    if any(degree.is_open for degree in degrees):
        return OPEN
    shifted = [i for i, d in enumerate(degrees) if not d.is_factor and not d.is_none]
    if not shifted:
        return degrees[0].plus(degrees[1], -1.0 if op.fn == "div" else 1.0)
    factor = proof.constant(op.args[1 - shifted[0]])
    if len(shifted) > 1 or factor is None or (op.fn == "div" and shifted[0] == 1):
        raise _DependsError
    return degrees[shifted[0]].scaled(1.0 / factor if op.fn == "div" else factor)


def _exponential(base: float) -> Callable[..., Degree]:
    def rule(proof: _Proof, op: Elementwise, degrees: list[Degree]) -> Degree:
        (degree,) = degrees
        if degree.is_factor:
            raise _DependsError
        return _degree(True, degree.scaled(log(base)).powers)

    return rule


def _logarithm(base: float) -> Callable[..., Degree]:
    def rule(proof: _Proof, op: Elementwise, degrees: list[Degree]) -> Degree:
        (degree,) = degrees
        if not degree.is_factor or degree.is_open:
            raise _DependsError
        return _degree(False, degree.scaled(1.0 / log(base)).powers)

    return rule


def _choice(proof: _Proof, op: Elementwise, degrees: list[Degree]) -> Degree:
    condition, *arms = degrees
    if not condition.is_none:
        raise _DependsError
    if proof.is_limit_test(op.args[0]) and sum(degree.is_none for degree in arms) == 1:
        # Where it holds, a maximum is infinite and nothing follows it.
        (number,) = [value for value, degree in zip(op.args[1:], arms) if degree.is_none]
        if proof.constant(number) is not None:
            return next(degree for degree in arms if not degree.is_none)
    kept: list[Degree] = []
    for value, degree in zip(op.args[1:], arms):
        is_free = proof.is_same_under_shifts(value, Degree(any(d.is_factor for d in arms)))
        kept.append(OPEN if is_free and degree.is_none else degree)
    return _agreed(kept)


def _limit_test(proof: _Proof, op: Elementwise, degrees: list[Degree]) -> Degree:
    """Whether a maximum is infinite, or a sum of powers zero: no shift changes that."""
    (place,) = [i for i, d in enumerate(degrees) if not d.is_none][:1]
    if not proof.is_same_under_shifts(op.args[1 - place], degrees[place]):
        raise _DependsError
    return NONE


def _view(proof: _Proof, op: Operation, degrees: list[Degree]) -> Degree:
    return degrees[0]


def _cast(proof: _Proof, op: Cast, degrees: list[Degree]) -> Degree:
    if op.bitcast or not op.dtype.is_float:
        raise _DependsError
    return degrees[0]


def _reduce(proof: _Proof, op: Reduce, degrees: list[Degree]) -> Degree:
    (degree,) = degrees
    if proof.is_shared(op.x.tile.shape[op.axis]):
        raise _DependsError
    if op.kind in ("max", "min") or (op.kind == "sum" and degree.is_factor):
        return degree
    raise _DependsError


def _dot(proof: _Proof, op: Dot, degrees: list[Degree]) -> Degree:
    lhs, rhs, *acc = degrees
    if any(not d.is_factor and not d.is_none for d in (lhs, rhs)):
        raise _DependsError
    if proof.is_shared(op.lhs.tile.shape[-1]):
        raise _DependsError
    product = OPEN if lhs.is_open or rhs.is_open else lhs.plus(rhs)
    return _agreed([product, *acc])


_SCALAR_RULES: dict[str, Callable[..., Degree]] = {
    "add": _sum,
    "sub": _sum,
    "neg": lambda proof, op, degrees: (
        degrees[0] if degrees[0].is_factor else degrees[0].scaled(-1.0)
    ),
    "mul": _product,
    "div": _product,
    "exp": _exponential(2.718281828459045),
    "exp2": _exponential(2.0),
    "log": _logarithm(2.718281828459045),
    "log2": _logarithm(2.0),
    "maximum": lambda proof, op, degrees: _agreed(degrees),
    "minimum": lambda proof, op, degrees: _agreed(degrees),
    "where": _choice,
    "eq": _limit_test,
    "ne": _limit_test,
}
_RULES: dict[type[Operation], Callable[[_Proof, Any, list[Degree]], Degree]] = {
    Elementwise: _elementwise,
    Cast: _cast,
    ExpandDims: _view,
    Broadcast: _view,
    Permute: _view,
    Reshape: _view,
    Reduce: _reduce,
    Dot: _dot,
}


@dataclass(frozen=True)
class IdleMaximum:
    """A maximum that no stored value depends on."""

    peak: Value
    places: Mapping[Loop, int]
    """The loops that carry it, the outermost first, and at which place; none may."""
    degrees: tuple[Degree, ...] = ()
    """How the results of the outermost loop follow it."""

    @property
    def loop(self) -> Loop | None:
        """The outermost loop that carries it."""
        return next(iter(self.places), None)


def find_shifts(function: Function) -> list[IdleMaximum]:
    """Maxima, and running maxima of loops, that no stored value depends on."""
    known = definitions(function.body)
    grids = [op for op in function.body.ops if isinstance(op, Grid)]
    maxima = [(grid, *found) for grid in grids for found in _maxima(grid.body, known)]
    idle: list[IdleMaximum] = []
    for grid, peak, places in maxima:
        proof = _Proof(peak, places, known)
        if proof.holds(grid):
            results = next((loop.results for loop in places), ())
            idle.append(IdleMaximum(peak, places, tuple(map(proof.degree, results))))
    return idle


def find_idle_maxima(function: Function) -> set[Value]:
    """All values that are such a maximum."""
    return values_of(find_shifts(function))


def values_of(maxima: Iterable[IdleMaximum]) -> set[Value]:
    """The maxima, and what carries them."""
    return {v for one in maxima for v in (one.peak, *_carriers(one.places))}


def _carriers(places: Mapping[Loop, int]) -> list[Value]:
    return [v for loop, i in places.items() for v in (loop.carried[i], loop.results[i])]


def _maxima(
    region: Region, known: Mapping[Value, Operation]
) -> Iterator[tuple[Value, Mapping[Loop, int]]]:
    for op in walk(region):
        if isinstance(op, Reduce) and op.kind in ("max", "min"):
            yield op.result, {}
        elif isinstance(op, Loop):
            # What it begins with may be an input itself, such as the score of a sink.
            constant = [i for i, init in enumerate(op.init) if isinstance(known.get(init), Full)]
            found = (_running_maximum(op, place) for place in constant)
            yield from (one for one in found if one is not None)


def _running_maximum(op: Loop, place: int) -> tuple[Value, Mapping[Loop, int]] | None:
    """The maximum that a loop carries at a place, by itself or by a loop inside."""
    carried, yielded = op.carried[place], op.body.yielded[place]
    source = next((inner for inner in op.body.ops if yielded in inner.results), None)
    if isinstance(source, Elementwise):
        is_running = source.fn == "maximum" and carried in source.args
        return (yielded, {op: place}) if is_running else None
    if not isinstance(source, Loop) or carried not in source.init:
        return None
    inner = source.init.index(carried)
    found = _running_maximum(source, inner) if source.results[inner] is yielded else None
    return None if found is None else (found[0], {op: place, **found[1]})
