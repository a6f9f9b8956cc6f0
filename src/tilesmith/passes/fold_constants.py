"""Evaluates ops on constants; a tile filled with one constant is one."""

from __future__ import annotations

from collections.abc import Sequence

from tilesmith.analysis.scalar_arithmetic import convert, evaluate, is_same_constant
from tilesmith.ir.axis_roles import Gathered, Inserted, Permuted, Picked, Repeated, Reshaped
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation, Region, Trait
from tilesmith.ir.ops.control_flow import If, While
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import BlockSize, Full, Mask
from tilesmith.ir.traversal import Definitions, Replacement, Rule, Substitution, apply_rules
from tilesmith.ir.types import Constant, Value

_MOVING_FORMS = (Inserted, Repeated, Permuted, Reshaped, Picked, Gathered)
"""Forms in which every element of the result is one of the first operand."""


def fold_constants(function: Function) -> Function:
    """Replace ops on constants by their value, and branches on constants by the arm taken.

    A loop whose condition is false at once is replaced by what it would have carried.

    Before::

        %a = full() {value=2} : i32[]
        %b = full() {value=3} : i32[]
        %c = elementwise(%a, %b) {fn="mul"} : i32[]

    After::

        %a = full() {value=2} : i32[]
        %b = full() {value=3} : i32[]
        %c = full() {value=6} : i32[]
    """
    rules: tuple[Rule, ...] = (
        _fold_elementwise,
        _fold_cast,
        _fold_view,
        _fold_mask,
        _fold_fixed_block(function),
    )
    return _inline_branches(apply_rules(function, rules))


def find_constant(value: Value, defined_by: Definitions) -> Constant | None:
    """The constant that fills a tile, if one does."""
    op = defined_by(value)
    return op.value if isinstance(op, Full) else None


def _full(op: Operation, value: Constant | None) -> Replacement | None:
    return None if value is None else (Full(value=value, results=op.results, loc=op.loc),)


def _fold_elementwise(op: Operation, defined_by: Definitions) -> Replacement | None:
    if not isinstance(op, Elementwise):
        return None
    constants = [find_constant(arg, defined_by) for arg in op.args]
    known = tuple(c for c in constants if c is not None)
    if len(known) != len(constants):
        return None
    return _full(op, evaluate(op.fn, op.args[-1].tile.dtype, known))


def _fold_cast(op: Operation, defined_by: Definitions) -> Replacement | None:
    if not isinstance(op, Cast) or op.bitcast:
        return None
    constant = find_constant(op.x, defined_by)
    return None if constant is None else _full(op, convert(constant, op.x.tile.dtype, op.dtype))


def _fold_view(op: Operation, defined_by: Definitions) -> Replacement | None:
    if not isinstance(op.form, _MOVING_FORMS):
        return None
    return _full(op, find_constant(next(op.operand_values()), defined_by))


def _fold_mask(op: Operation, defined_by: Definitions) -> Replacement | None:
    if not isinstance(op, Mask):
        return None
    constant = find_constant(op.x, defined_by)
    if constant is None or not is_same_constant(constant, op.fill):
        return None
    return op.x


def _fold_fixed_block(function: Function) -> Rule:
    def rule(op: Operation, defined_by: Definitions) -> Replacement | None:
        if not isinstance(op, BlockSize):
            return None
        return _full(op, function.block(op.block).fixed)

    return rule


def _inline_branches(function: Function) -> Function:
    """Replace each branch on a constant by the ops of the arm taken, and drop idle loops."""
    return function.with_body(_inline_in(function.body, {}, Substitution()))


def _inline_in(
    region: Region, constants: dict[Value, Constant], substitution: Substitution
) -> Region:
    new_ops: list[Operation] = []
    for op in region.ops:
        current = op.with_operands(substitution)
        inner = tuple(_inline_in(r, constants, substitution) for r in current.regions())
        current = current.with_regions(inner)
        if isinstance(current, Full) and current.result.tile.rank == 0:
            constants[current.result] = current.value
        if isinstance(current, If) and current.condition in constants:
            arm = current.then if constants[current.condition] else current.otherwise
            new_ops.extend(_take_arm(current.results, arm, substitution))
        elif isinstance(current, While) and _never_runs(current, constants):
            for result, value in zip(current.results, current.init):
                substitution[result] = value
        else:
            new_ops.append(current)
    return region.with_ops(new_ops)


def _take_arm(
    results: tuple[Value, ...], arm: Region, substitution: Substitution
) -> Sequence[Operation]:
    for result, value in zip(results, arm.yielded):
        substitution[result] = value
    return [op for op in arm.ops if Trait.TERMINATOR not in op.traits]


def _never_runs(loop: While, constants: dict[Value, Constant]) -> bool:
    """Whether the condition is false for the values the loop starts with."""
    begins = zip(loop.condition.args, loop.init)
    known = constants | {arg: constants[init] for arg, init in begins if init in constants}
    for op in loop.condition.ops:
        value = _scalar_result(op, known)
        if value is not None:
            known[op.results[0]] = value
    (condition,) = loop.condition.yielded
    return known.get(condition) is False


def _scalar_result(op: Operation, known: dict[Value, Constant]) -> Constant | None:
    if isinstance(op, Full) and op.result.tile.rank == 0:
        return op.value
    if isinstance(op, Cast) and op.x in known and not op.bitcast:
        return convert(known[op.x], op.x.tile.dtype, op.dtype)
    if isinstance(op, Elementwise) and all(arg in known for arg in op.args):
        return evaluate(op.fn, op.args[-1].tile.dtype, tuple(known[arg] for arg in op.args))
    return None
