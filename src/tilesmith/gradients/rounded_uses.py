"""Which uses of a rounded result keep the gradient as near to the exact one as eager's is.

A factor passes its relative error on. Where a result is subtracted from something, digits may
cancel and leave the error. Eager torch differentiates three functions by their rounded results all
the same: ``y (1 - y)`` of a sigmoid, ``1 - y y`` of a tanh, ``0 < y`` of a relu. So does a backward
that would have to compute a matrix product again without them; others compute the function again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation, Trait
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import Full
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.memory import Load
from tilesmith.ir.traversal import definitions, walk
from tilesmith.ir.types import Value


def can_be_rounded(
    source: Operation | None, tensor: Value, function: Function, other: Function
) -> bool:
    """Whether a backward uses what it loads from a tensor only in ways that allow for rounding.

    ``source`` computed in the forward function what was rounded and stored there; the ``other``
    backward does without.
    """
    known = definitions(function.body)
    ops = list(walk(function.body))
    if _num_products(function) == _num_products(other):
        source = None
    spread = {op.result for op in ops if isinstance(op, Load) and op.tensor is tensor}
    squares: set[Value] = set()
    for op in ops:
        used = [value for value in op.operand_values() if value in spread]
        if used and (isinstance(op, Cast) or Trait.VIEW in op.traits):
            spread.update(op.results)
        elif used and _is_square(op, used, source):
            squares.update(op.results)
        elif used and not (_is_factor(op, used) or _is_slope(op, used, source, known)):
            return False
        turned = [value for value in op.operand_values() if value in squares]
        if turned and not _is_complement(op, turned, known):
            return False
    return True


def _num_products(function: Function) -> int:
    return sum(isinstance(op, Dot) for op in walk(function.body))


def _is_factor(op: Operation, used: Sequence[Value]) -> bool:
    if isinstance(op, Elementwise) and op.fn == "div":
        return op.args[1] not in used
    is_product = isinstance(op, Dot) or (isinstance(op, Elementwise) and op.fn == "mul")
    return is_product and len(used) == 1


def _is_slope(
    op: Operation,
    used: Sequence[Value],
    source: Operation | None,
    known: Mapping[Value, Operation],
) -> bool:
    """Whether it is part of the derivative of the function whose result is used."""
    if not isinstance(source, Elementwise):
        return False
    if source.fn == "maximum" and isinstance(op, Elementwise) and op.fn == "lt":
        return op.args[1] in used and _is_number(op.args[0], 0, known)
    return source.fn == "sigmoid" and _is_complement(op, used, known)


def _is_square(op: Operation, used: Sequence[Value], source: Operation | None) -> bool:
    is_tanh = isinstance(source, Elementwise) and source.fn == "tanh"
    return is_tanh and isinstance(op, Elementwise) and op.fn == "mul" and len(used) > 1


def _is_complement(op: Operation, used: Sequence[Value], known: Mapping[Value, Operation]) -> bool:
    """Whether it is one minus what is used."""
    if not isinstance(op, Elementwise) or op.fn != "sub":
        return False
    return op.args[1] in used and _is_number(op.args[0], 1, known)


def _is_number(value: Value, number: int, known: Mapping[Value, Operation]) -> bool:
    op = known.get(value)
    return isinstance(op, Full) and op.value == number
