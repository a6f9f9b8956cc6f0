"""What the invalid lanes of tiles hold: a known constant along an axis, or anything.

A lane is invalid along an axis when it lies past the end of that axis's tile. The fact about an
axis covers every lane invalid along it, whatever the other axes say; only comparisons with lengths
are left open where the lengths themselves are invalid. Facts belong to a place:
inside a loop that binds a block, lanes of values from outside become invalid that were valid
before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tilesmith.analysis.scalar_arithmetic import convert, evaluate, is_same_constant, normalize
from tilesmith.ir.axis_roles import LANES_MEET
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation, Region, Trait
from tilesmith.ir.ops.control_flow import Loop
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import Full, Mask, TileIndex
from tilesmith.ir.ops.memory import Load
from tilesmith.ir.ops.reduction import Reduce, ReduceKind
from tilesmith.ir.ops.shape import Broadcast, ExpandDims, Permute, Reshape
from tilesmith.ir.traversal import bound_blocks, definitions
from tilesmith.ir.types import Constant, TileType, Value


@dataclass(frozen=True)
class Lanes:
    """The constant held by the lanes invalid along each axis (None: unknown), and by every lane."""

    axes: tuple[Constant | None, ...]
    uniform: Constant | None = None


Facts = dict[Value, Lanes]


def find_masked_lanes(function: Function) -> dict[Operation, dict[Value, Lanes]]:
    """For every op, what its tile operands hold in invalid lanes at that place."""
    analysis = _Analysis(definitions(function.body))
    analysis.visit(function.body, {})
    return analysis.operands


def _unknown(value: Value) -> Lanes:
    return Lanes((None,) * value.tile.rank)


class _Analysis:
    """Walks regions in order; loops are walked until their carried facts no longer change."""

    def __init__(self, defined_by: Mapping[Value, Operation]) -> None:
        self.operands: dict[Operation, dict[Value, Lanes]] = {}
        self._defined_by = defined_by
        self._loops: list[Loop] = []

    def visit(self, region: Region, facts: Facts) -> None:
        for op in region.ops:
            self.operands[op] = {
                value: facts.get(value) or _unknown(value)
                for value in op.operand_values()
                if isinstance(value.type, TileType)
            }
            if isinstance(op, Loop):
                self._visit_loop(op, facts)
                continue
            for inner in op.regions():
                self.visit(inner, _enter(facts, bound_blocks(op)))
            if len(op.results) == 1:
                facts[op.result] = self._compare(op, _transfer(op, self.operands[op]))

    def _compare(self, op: Operation, lanes: Lanes) -> Lanes:
        """The fact about a comparison with the lengths that a loop around it ends at."""
        if not isinstance(op, Elementwise) or op.fn != "lt":
            return lanes
        # Where a loop ends at the greatest of some lengths, `index < length` is false past its end,
        # in every lane of the lengths that is valid itself: it says all that the mask would say.
        index, length = (_origin(arg, self._defined_by) for arg in op.args)
        tile = self._defined_by.get(index)
        begin = tile.begin if isinstance(tile, TileIndex) else None
        ended = {
            block
            for loop in self._loops
            for block, arg, end in zip(loop.blocks, loop.body.args, loop.ends)
            if block and arg is begin and length is _lengths_behind(end, self._defined_by)
        }
        shape = op.result.tile.shape
        # Of two axes of one tile, only one is that of the indices.
        axes = tuple(
            False if dim.symbol in ended and shape.count(dim) == 1 else held
            for dim, held in zip(shape, lanes.axes)
        )
        return Lanes(axes, lanes.uniform)

    def _visit_loop(self, op: Loop, facts: Facts) -> None:
        blocks = bound_blocks(op)
        inside = _enter(facts, blocks)
        carried = [inside.get(value) or _unknown(value) for value in op.init]
        while True:
            scope = {**inside, **dict(zip(op.carried, carried))}
            self._loops.append(op)
            self.visit(op.body, scope)
            self._loops.pop()
            new = [scope.get(value) or _unknown(value) for value in op.body.yielded]
            # A lane past the end of this tile may still hold what a longer tile put there.
            merged = [
                _forget(arg, _meet_lanes(before, after), blocks)
                for arg, before, after in zip(op.carried, carried, new)
            ]
            if merged == carried:
                break
            carried = merged
        facts.update(_enter(dict(zip(op.results, carried)), blocks))


def _enter(facts: Facts, blocks: frozenset[str]) -> Facts:
    """The facts that still hold where ``blocks`` are bound anew."""
    return {value: _forget(value, lanes, blocks) for value, lanes in facts.items()}


def _forget(value: Value, lanes: Lanes, blocks: frozenset[str]) -> Lanes:
    if lanes.uniform is not None:
        return lanes
    dims = value.tile.shape
    kept = (None if blocks & set(dim.symbols) else c for dim, c in zip(dims, lanes.axes))
    return Lanes(tuple(kept))


def _meet(lhs: Constant | None, rhs: Constant | None) -> Constant | None:
    return lhs if is_same_constant(lhs, rhs) else None


def _meet_lanes(lhs: Lanes, rhs: Lanes) -> Lanes:
    return Lanes(tuple(map(_meet, lhs.axes, rhs.axes)), _meet(lhs.uniform, rhs.uniform))


def _transfer(op: Operation, operands: dict[Value, Lanes]) -> Lanes:
    rule = _VALUE_RULES.get(type(op))
    if rule is not None:
        return rule(op, operands)
    if op.form.is_lane_wise and Trait.VIEW in op.traits:
        return _of_view(op, operands)
    if op.form.roles & LANES_MEET:
        return _of_combined_lanes(op, operands)
    # That nothing is known is true of any op.
    return _unknown(op.result)


def _of_view(op: Operation, operands: dict[Value, Lanes]) -> Lanes:
    """An axis holds what the one it was kept from does; a new or repeated one says nothing more."""
    (roles,), (held,) = op.axis_roles(), operands.values()
    axes = [held.uniform] * op.result.tile.rank
    for constant, role in zip(held.axes, roles):
        if role.to is not None:
            axes[role.to] = constant
    return Lanes(tuple(axes), held.uniform)


def _of_combined_lanes(op: Operation, operands: dict[Value, Lanes]) -> Lanes:
    """Lanes that are neutral in the operand may be known to be so in the result."""
    axes: list[Constant | None] = [None] * op.result.tile.rank
    first = next(op.operand_values())
    for held, role in zip(operands[first].axes, op.axis_roles()[0]):
        neutral = None if role.to is None else op.neutral_result(role.to)
        if role.to is not None and neutral is not None:
            axes[role.to] = _meet(held, normalize(neutral, op.result.tile.dtype))
    return Lanes(tuple(axes))


def _of_full(op: Full, operands: dict[Value, Lanes]) -> Lanes:
    value = normalize(op.value, op.result.tile.dtype)
    return Lanes((value,) * op.result.tile.rank, value)


def _evaluate_known(op: Elementwise, held: list[Constant | None]) -> Constant | None:
    dtype = op.args[-1].tile.dtype
    if op.fn == "where" and held[0] is not None:
        # Only the side chosen matters.
        return held[1] if held[0] else held[2]
    if op.fn == "where":
        return _meet(held[1], held[2])
    if op.fn == "and" and dtype.is_bool and False in held:
        return False
    return evaluate(op.fn, dtype, held)


def _of_elementwise(op: Elementwise, operands: dict[Value, Lanes]) -> Lanes:
    lanes = [operands[arg] for arg in op.args]
    axes = tuple(
        _evaluate_known(op, [held.axes[axis] for held in lanes])
        for axis in range(op.result.tile.rank)
    )
    return Lanes(axes, _evaluate_known(op, [held.uniform for held in lanes]))


def _of_cast(op: Cast, operands: dict[Value, Lanes]) -> Lanes:
    if op.bitcast:
        return _unknown(op.result)
    held, types = operands[op.x], (op.x.tile.dtype, op.dtype)
    return Lanes(tuple(convert(x, *types) for x in held.axes), convert(held.uniform, *types))


def _of_mask(op: Mask, operands: dict[Value, Lanes]) -> Lanes:
    held = operands[op.x]
    fill = normalize(op.fill, op.result.tile.dtype)
    # A lane invalid along an unmasked axis may be invalid along a masked one too.
    met = [_meet(constant, fill) for constant in held.axes]
    axes = tuple(fill if axis in op.axes else constant for axis, constant in enumerate(met))
    return Lanes(axes, _meet(held.uniform, fill))


_VALUE_RULES: dict[type[Operation], Callable[..., Lanes]] = {
    Full: _of_full,
    Load: lambda op, _: Lanes((normalize(0, op.result.tile.dtype),) * op.result.tile.rank),
    Elementwise: _of_elementwise,
    Cast: _of_cast,
    Mask: _of_mask,
}
"""Ops that make new constants of those they find: axis roles cannot say which."""


def _origin(value: Value, defined_by: Mapping[Value, Operation]) -> Value:
    """The value before it was arranged along other axes or widened."""
    op = defined_by.get(value)
    while isinstance(op, (Broadcast, ExpandDims, Permute, Reshape, Cast)):
        if isinstance(op, Cast):
            source, target = op.x.tile.dtype, op.dtype
            is_widening = source.kind is target.kind and source.bits <= target.bits
            if not (source.is_integer and is_widening):
                break
        value = op.x
        op = defined_by.get(value)
    return value


def _lengths_behind(end: Value, defined_by: Mapping[Value, Operation]) -> Value:
    """The lengths whose maximum is the end; an end of 32 bits is meant to be enough for it."""
    while True:
        end = _origin(end, defined_by)
        op = defined_by.get(end)
        is_maximum = isinstance(op, Reduce) and op.reduction is ReduceKind.MAX
        is_narrowing = isinstance(op, Cast) and op.x.tile.dtype.is_integer and not op.bitcast
        if not (is_maximum or is_narrowing or isinstance(op, Mask)):
            return end
        assert isinstance(op, (Reduce, Cast, Mask))
        end = op.x
