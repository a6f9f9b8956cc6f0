"""Drops selections that give lanes the constant they hold already, as masked loads do.

A load reads 0 where its mask is false, and what is computed from zeros alone is known as well.
Lanes are told apart by the axes they lie on, so those of a value must differ from each other.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from tilesmith.analysis.scalar_arithmetic import convert, evaluate, is_same_constant, normalize
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import Full
from tilesmith.ir.ops.memory import Load
from tilesmith.ir.ops.reduction import Reduce
from tilesmith.ir.ops.shape import Broadcast, ExpandDims
from tilesmith.ir.traversal import Definitions, Replacement, apply_rules
from tilesmith.ir.types import Constant, Dim, Shape, Value

_DEPTH = 8
"""How many ops behind a value are looked at."""


def drop_idle_selections(function: Function) -> Function:
    """Use a value itself where it is the selected constant in all lanes not selected.

    Before::

        %v = load(%x, %within, [%i]) : f32[t]
        %s = elementwise(%within, %v, %zero) {fn="where"} : f32[t]

    After::

        %v = load(%x, %within, [%i]) : f32[t]

    with ``%v`` used for ``%s``. Equal conditions must be one value by now.
    """
    return apply_rules(function, (_where_held,))


def _where_held(op: Operation, defined_by: Definitions) -> Replacement | None:
    if not isinstance(op, Elementwise) or op.fn != "where":
        return None
    condition, chosen, other = op.args
    filled = defined_by(other)
    if not isinstance(filled, Full):
        return None
    held = constant_where_false(chosen, condition, defined_by)
    fill = normalize(filled.value, other.tile.dtype)
    is_idle = held is not None and fill is not None and is_same_constant(held, fill)
    return chosen if is_idle else None


def constant_where_false(
    value: Value, condition: Value, defined_by: Definitions
) -> Constant | None:
    """The constant in all lanes of ``value`` where ``condition`` is false; None if not known."""
    axes = _axes(value.tile.shape)
    if len(set(axes)) < len(axes):
        return None
    return _Finder(condition, defined_by).find(value, _DEPTH)


def _axes(shape: Shape) -> list[Dim]:
    return [dim for dim in shape if not dim.is_one]


def _conjuncts(condition: Value, defined_by: Definitions) -> Iterator[Hashable]:
    """What is true together exactly where the condition is, the same for equal comparisons."""
    op = defined_by(condition)
    if isinstance(op, (Broadcast, ExpandDims)):
        yield from _conjuncts(op.x, defined_by)
    elif isinstance(op, Elementwise) and op.fn == "and":
        for arg in op.args:
            yield from _conjuncts(arg, defined_by)
    elif isinstance(op, Elementwise):
        yield (op.fn, *(_arranged(arg, defined_by) for arg in op.args))
    else:
        yield condition


def _arranged(value: Value, defined_by: Definitions) -> Value:
    """The value before it was given further axes."""
    op = defined_by(value)
    while isinstance(op, (Broadcast, ExpandDims)):
        value = op.x
        op = defined_by(value)
    return value


class _Finder:
    """Follows definitions from a value back to loads and constants."""

    def __init__(self, condition: Value, defined_by: Definitions) -> None:
        self._conditions = set(_conjuncts(condition, defined_by))
        self._axes = _axes(_arranged(condition, defined_by).tile.shape)
        self._defined_by = defined_by

    def find(self, value: Value, depth: int) -> Constant | None:
        """The constant held in the lanes in question."""
        op = self._defined_by(value) if depth else None
        if isinstance(op, Full):
            return normalize(op.value, value.tile.dtype)
        if isinstance(op, Load):
            is_masked = op.mask is not None and self._is_false(op.mask)
            return normalize(0, value.tile.dtype) if is_masked else None
        if isinstance(op, (Broadcast, ExpandDims)):
            return self.find(op.x, depth - 1)
        if isinstance(op, Cast):
            return self._of_cast(op, depth)
        if isinstance(op, Reduce):
            return self._of_reduction(op, depth)
        return self._of_elementwise(op, depth) if isinstance(op, Elementwise) else None

    def _is_false(self, condition: Value) -> bool:
        """Whether a condition is false wherever the given one is."""
        return self._conditions <= set(_conjuncts(condition, self._defined_by))

    def _of_cast(self, op: Cast, depth: int) -> Constant | None:
        held = None if op.bitcast else self.find(op.x, depth - 1)
        return None if held is None else convert(held, op.x.tile.dtype, op.dtype)

    def _of_reduction(self, op: Reduce, depth: int) -> Constant | None:
        """Any number of identities give the identity."""
        source = op.x.tile
        is_along = source.shape[op.axis] in self._axes
        if is_along or op.reduction.is_arg or source.dtype != op.result.tile.dtype:
            return None
        identity = normalize(op.reduction.identity(source.dtype), source.dtype)
        held = self.find(op.x, depth - 1)
        return held if _is_same(held, identity) else None

    def _of_elementwise(self, op: Elementwise, depth: int) -> Constant | None:
        if op.fn == "where":
            return self._of_selection(op, depth)
        held = [self.find(arg, depth - 1) for arg in op.args]
        known = tuple(constant for constant in held if constant is not None)
        if len(known) < len(held):
            return None
        return evaluate(op.fn, op.args[-1].tile.dtype, known)

    def _of_selection(self, op: Elementwise, depth: int) -> Constant | None:
        condition, chosen, other = op.args
        rest = self.find(other, depth - 1)
        if rest is None or self._is_false(condition):
            return rest
        return rest if _is_same(self.find(chosen, depth - 1), rest) else None


def _is_same(lhs: Constant | None, rhs: Constant | None) -> bool:
    return lhs is not None and rhs is not None and is_same_constant(lhs, rhs)
