"""Loops that only add to what they carry: the cotangents of such sums are the same in every turn.

Some loops only add once their running maximum is settled. Every turn of a stable softmax may shift
its scores by any number (``shifts.py``), so also by the maximum of all of them. Then nothing is
rescaled from turn to turn, turns come in any order, and no state is kept. The forward loop still
finds the maximum; its adjoint is that of the settled one. Where the forward kernel has stored
``peak + log(total)``, even that is not needed: shifted by this number, the total is one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import log

from tilesmith.gradients.copies import Copies
from tilesmith.gradients.saved import SavedValue
from tilesmith.gradients.shifts import NEW, Degree, IdleMaximum
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.ops.control_flow import Loop, Yield
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import Full
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.shape import Broadcast, ExpandDims
from tilesmith.ir.tile_writer import TileWriter
from tilesmith.ir.traversal import (
    Substitution,
    count_uses,
    definitions,
    rewrite_function,
    values_defined_in,
    walk,
)
from tilesmith.ir.types import ONE, Shape, Value
from tilesmith.passes.simplify import fold_constants, simplify_attached


def is_only_added_to(op: Loop, place: int) -> bool:
    """Whether a turn adds to a carried value and uses it for nothing else."""
    uses = count_uses(op.body)
    value, target = op.carried[place], op.body.yielded[place]
    while value is not target:
        user = _only_user(op.body, value) if uses.get(value) == 1 else None
        following = None if user is None else _sum_with(user, value)
        if following is None:
            return False
        value = following
    # One more use than the yield would see the running sum.
    return uses.get(target, 0) == 1


def _only_user(region: Region, value: Value) -> Operation | None:
    return next((op for op in region.ops if value in op.operand_values()), None)


def _sum_with(op: Operation, value: Value) -> Value | None:
    """The result of an op that only adds something to a value."""
    if isinstance(op, Elementwise) and op.fn in ("add", "sub"):
        return op.result if op.fn == "add" or op.args[0] is value else None
    if isinstance(op, Cast):
        return op.result if op.dtype.is_float and not op.bitcast else None
    if isinstance(op, Dot):
        return op.result if op.acc is value and value not in (op.lhs, op.rhs) else None
    if isinstance(op, Loop) and value in op.init:
        place = op.init.index(value)
        return op.results[place] if is_only_added_to(op, place) else None
    return None


EXPONENTIALS = ("exp", "exp2")
LOGARITHMS = {"log": Degree(True, {NEW: -1.0}), "log2": Degree(True, {NEW: -log(2.0)})}
"""By function: how a sum of powers follows the maximum, if its logarithm is to cancel it."""


@dataclass(frozen=True)
class SettledLoop:
    """A loop, and the one whose adjoint stands for its own."""

    maximum: IdleMaximum
    loop: Loop
    """As it was."""
    place: int
    """Which of the values that it carries is the maximum."""
    results: tuple[Value, ...]
    """Of the settled loop, which does not carry it."""

    @property
    def peak(self) -> Value:
        """The maximum of all turns."""
        return self.loop.results[self.place]

    def pairs(self) -> list[tuple[Value, Value]]:
        """Results of the settled loop with those of the other: they are the same."""
        rest = [v for i, v in enumerate(self.loop.results) if i != self.place]
        return list(zip(self.results, rest))

    def own_values(self) -> set[Value]:
        """What only the loop as it was computes: nothing goes back through it."""
        return {*values_defined_in(self.loop.body), *self.loop.results}


def settle_maxima(
    function: Function, maxima: Sequence[IdleMaximum]
) -> tuple[Function, list[SettledLoop]]:
    """The function with settled loops after those that find a maximum.

    Before::

        %p, %s = loop(...) { ... yield(%new_peak, %new_sum) }

    After, where ``%s`` is only added to::

        %p, %s = loop(...) { ... yield(%new_peak, %new_sum) }
        %t = loop(...) { ... with %p for the peaks of all turns ... }
    """
    loops = [one.loop for one in maxima]
    fitting = [one for one in maxima if one.loop is not None and loops.count(one.loop) == 1]
    while fitting:
        made, settled = _insert(function, fitting)
        loops = {op.results: op for op in walk(made.body) if isinstance(op, Loop)}
        done = [one for one in settled if _only_adds(loops[one.results])]
        if len(done) == len(fitting):
            return made, settled
        fitting = [one.maximum for one in done]
    return function, []


def _only_adds(op: Loop) -> bool:
    return all(is_only_added_to(op, place) for place in range(len(op.carried)))


def _insert(
    function: Function, maxima: Sequence[IdleMaximum]
) -> tuple[Function, list[SettledLoop]]:
    settled: list[SettledLoop] = []
    by_loop = {one.loop: one for one in maxima}
    substitution = Substitution()

    def insert(op: Operation) -> Operation | list[Operation]:
        original = next((loop for loop in by_loop if loop and loop.results == op.results), None)
        if not isinstance(op, Loop) or original is None:
            return op
        maximum = by_loop[original]
        place = maximum.places[original]
        places = {loop.results: inner for loop, inner in maximum.places.items()}
        after = _Settling(op.results[place], places).loop(op)
        one = SettledLoop(maximum, op, place, after.results)
        settled.append(one)
        for new, old in one.pairs():
            substitution[old] = new
        return [op, after]

    made = rewrite_function(function, insert, substitution)
    return simplify_attached(fold_constants(made)), settled


class _Settling:
    """Copies loops with the last maximum in place of each turn's.

    One maximum minus itself is zero, and the power of that is one.
    """

    def __init__(self, peak: Value, places: Mapping[tuple[Value, ...], int]) -> None:
        self._peak = peak
        self._places = places
        """By the results of a loop that carries the maximum: where."""
        self._copies = Copies()
        self._shapes: dict[Value, Shape] = {peak: peak.tile.shape}
        """Views of the maximum, with their shapes."""
        self._zeros: set[Value] = set()
        self._tests: set[Value] = set()
        """Whether the maximum is infinite."""

    def loop(self, op: Loop) -> Loop:
        """A loop that does not carry the maximum."""
        place, copies = self._places[op.results], self._copies

        def rest(values: Sequence[Value]) -> list[Value]:
            return [value for i, value in enumerate(values) if i != place]

        bounds = {
            name: tuple(map(copies.of, getattr(op, name))) for name in ("begins", "ends", "steps")
        }
        init = tuple(map(copies.of, rest(op.init)))
        args = tuple(map(copies.add, (*op.body.args[: op.rank], *rest(op.carried))))
        peak = op.body.yielded[place]
        for value in (op.carried[place], peak, op.results[place]):
            copies.values[value] = self._peak
        kept = [one for one in op.body.ops[:-1] if isinstance(one, Loop) or peak not in one.results]
        ops = [*map(self._copy, kept)]
        yielded = tuple(map(copies.of, rest(op.body.yielded)))
        ops.append(Yield(values=yielded, loc=op.loc))
        body, results = Region(args, tuple(ops)), tuple(map(copies.add, rest(op.results)))
        return replace(op, **bounds, init=init, body=body, results=results)

    def _copy(self, op: Operation) -> Operation:
        if isinstance(op, Loop) and op.results in self._places:
            return self.loop(op)
        operands = [self._copies.of(value) for value in op.operand_values()]
        number: float | None = None
        if isinstance(op, Elementwise) and op.fn == "sub":
            first, second = (self._shapes.get(value) for value in operands)
            number = 0.0 if first is not None and first == second else None
        elif isinstance(op, Elementwise) and op.fn in EXPONENTIALS:
            number = 1.0 if operands[0] in self._zeros else None
        if number is not None:
            result = self._copies.add(op.result)
            self._zeros.update([result] if number == 0.0 else [])
            return Full(value=number, results=(result,), loc=op.loc)
        copy = self._copies.clone(op)
        if self._is_view(op, operands):
            self._shapes[copy.result] = copy.result.tile.shape
        elif isinstance(op, Elementwise) and op.fn == "eq" and operands[0] in self._shapes:
            self._tests.add(copy.result)
        return copy

    def _is_view(self, op: Operation, operands: Sequence[Value]) -> bool:
        """Whether it is the maximum again, or a number where that is infinite."""
        if isinstance(op, Elementwise):
            return op.fn == "where" and operands[0] in self._tests and operands[2] in self._shapes
        return isinstance(op, (ExpandDims, Broadcast)) and operands[0] in self._shapes


def find_normalisers(
    function: Function, settled: Collection[SettledLoop], saved: Sequence[SavedValue]
) -> Iterator[SavedValue]:
    """Saved values that are a maximum plus the logarithm of a sum that follows it."""
    known = definitions(function.body)
    for one in saved:
        source = known.get(one.value)
        is_sum = isinstance(source, Elementwise) and source.fn == "add" and not one.is_rounded
        for loop in settled if is_sum else ():
            total = None if source is None else _summed(loop, source, known)
            shifted = None if total is None else _shifted(one, loop, total)
            if shifted is not None:
                yield shifted


def make_normalisers(settled: Collection[SettledLoop]) -> Iterator[SavedValue]:
    """The same where nothing is stored: computed once, after the loop."""
    for loop in settled:
        for total, old in loop.pairs():
            degree = loop.maximum.degrees[loop.loop.results.index(old)]
            logarithm = next((fn for fn, k in LOGARITHMS.items() if degree.same(k)), None)
            if logarithm is None or old.type != loop.peak.type:
                continue
            writer = TileWriter(lambda loc=loop.loop.loc: loc)
            writer.open_region()
            found = writer.apply("add", loop.peak, writer.apply(logarithm, old))
            found.name = "normaliser"
            ops = writer.close_region().ops
            one = SavedValue(found, loop.peak, ops, found, found, False, ())
            shifted = _shifted(one, loop, total)
            if shifted is not None:
                yield shifted


def _summed(loop: SettledLoop, source: Operation, known: Mapping[Value, Operation]) -> Value | None:
    """The sum in ``peak + log(sum)``."""
    values = list(source.operand_values())
    others = [value for value in values if value is not loop.peak]
    op = known.get(others[0]) if len(others) == 1 else None
    total = op.args[0] if isinstance(op, Elementwise) and op.fn in LOGARITHMS else None
    return total if total in loop.results else None


def _shifted(one: SavedValue, loop: SettledLoop, total: Value) -> SavedValue | None:
    """All that follows the maximum as it is where the total is one; None where it is not known."""
    pairs = dict(loop.pairs())
    degrees = dict(zip(loop.loop.results, loop.maximum.degrees))
    stand_ins: list[tuple[Value, tuple[Operation, ...]]] = [(loop.peak, ()), (one.value, ())]
    for new, old in pairs.items():
        if new is total or degrees[old].is_none:
            continue
        ops = _quotient(old, pairs[total])
        if not degrees[old].same(degrees[pairs[total]]) or ops is None:
            return None
        stand_ins.append((new, ops))
    unit = Full(value=1.0, results=(total.like(),), loc=one.value.loc)
    return replace(one, after=loop.results[0], stand_ins=(*stand_ins, (total, (unit,))))


def _quotient(above: Value, below: Value) -> tuple[Operation, ...] | None:
    """One result of the loop over another, which may have fewer axes."""
    axes = inserted_axes(below.tile.shape, above.tile.shape)
    if axes is None:
        return None
    writer = TileWriter(lambda: above.loc)
    writer.open_region()
    if axes:
        dims = [ONE if i in axes else dim for i, dim in enumerate(above.tile.shape)]
        kind = below.tile.with_shape(tuple(dims))
        below = writer.create(ExpandDims, kind, x=below, axes=axes)
        below = writer.create(Broadcast, above.tile.with_shape(above.tile.shape), x=below)
    writer.apply("div", above, below)
    return writer.close_region().ops


def inserted_axes(narrow: Shape, wide: Shape) -> tuple[int, ...] | None:
    """The axes of a shape without which it is another."""
    left = list(narrow)
    axes: list[int] = []
    for axis, dim in enumerate(wide):
        if left and left[0] == dim:
            left.pop(0)
        else:
            axes.append(axis)
    return None if left else tuple(axes)
