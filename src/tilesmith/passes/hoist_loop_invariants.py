"""Moves computations that do not change from iteration to iteration in front of their loop."""

from __future__ import annotations

from tilesmith.analysis.effects import is_pure
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.ops.control_flow import Loop, While
from tilesmith.ir.ops.elementwise import Elementwise
from tilesmith.ir.ops.indexing import Full
from tilesmith.ir.traversal import bound_blocks, definitions, rewrite_function, shape_symbols
from tilesmith.ir.types import Value

_DIVISIONS = ("floordiv", "truncdiv", "mod", "fmod")


def hoist_loop_invariants(function: Function) -> Function:
    """Move pure ops whose operands come from outside out of sequential loops.

    Before::

        %r = loop([%zero], [%n], [], [%acc]) {blocks=["k"]} : f32[m]
        (%i: i32[], %a: f32[m]) {
          %s = elementwise(%q, %scale) {fn="mul"} : f32[m]
          %b = elementwise(%a, %s) {fn="add"} : f32[m]
          yield(%b)
        }

    After::

        %s = elementwise(%q, %scale) {fn="mul"} : f32[m]
        %r = loop([%zero], [%n], [], [%acc]) {blocks=["k"]} : f32[m]
        (%i: i32[], %a: f32[m]) {
          %b = elementwise(%a, %s) {fn="add"} : f32[m]
          yield(%b)
        }

    Nothing leaves a branch, and nothing with an axis of the loop's own blocks leaves the loop.
    """
    divisors = definitions(function.body)

    def rewrite(op: Operation) -> list[Operation] | Operation:
        return _hoist_from(op, divisors) if isinstance(op, (Loop, While)) else op

    return rewrite_function(function, rewrite)


def _hoist_from(op: Operation, defined_by: dict[Value, Operation]) -> list[Operation] | Operation:
    hoisted: list[Operation] = []
    regions = tuple(_split(region, op, hoisted, defined_by) for region in op.regions())
    return [*hoisted, op.with_regions(regions)] if hoisted else op


def _split(
    region: Region, loop: Operation, hoisted: list[Operation], defined_by: dict[Value, Operation]
) -> Region:
    """Move the invariant ops of a region to ``hoisted`` and give back the rest."""
    inside = set(region.args)
    kept: list[Operation] = []
    for op in region.ops:
        is_invariant = (
            not inside.intersection(op.operand_values())
            and _is_movable(op, defined_by)
            and not shape_symbols(op) & bound_blocks(loop)
        )
        if is_invariant:
            hoisted.append(op)
        else:
            kept.append(op)
            inside.update(op.results)
    return region if len(kept) == len(region.ops) else Region(region.args, tuple(kept))


def _is_movable(op: Operation, defined_by: dict[Value, Operation]) -> bool:
    if not is_pure(op) or op.regions():
        return False
    # A loop may run no iteration at all, and an integer division by zero traps on CPUs.
    if isinstance(op, Elementwise) and op.fn in _DIVISIONS and op.result.tile.dtype.is_integer:
        divisor = defined_by.get(op.args[1])
        return isinstance(divisor, Full) and divisor.value != 0
    return True
