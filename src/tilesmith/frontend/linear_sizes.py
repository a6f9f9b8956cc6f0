"""Runtime integers as sums of multiples, and lengths that are known from them.

So ``s : s + 2 * t.block_size`` is known to be two blocks long, whatever ``s`` is.
"""

from __future__ import annotations

from math import prod
from typing import Any

from tilesmith.frontend.sessions import current_tracer
from tilesmith.frontend.values import Scalar, TileValue
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import BlockSize, Full
from tilesmith.ir.types import Dim
from tilesmith.ir.values import Value

Linear = dict[Value | str | None, int]
"""Coefficients of unknown values, of symbols (blocks and runtime sizes), and the constant."""


def length_between(start: Any, stop: Any, step: int = 1) -> Dim | None:
    """The length of a range, if it is a constant or a multiple of one symbol."""
    span = _sum(linear_form(stop), linear_form(start), -1)
    if not set(span) - {None}:
        return Dim.of(len(range(0, span.get(None, 0), step)))
    if len(span) > 1:
        return None
    ((symbol, count),) = span.items()
    if not isinstance(symbol, str) or count <= 0 or count % step:
        return None
    is_block = any(block.name == symbol for block in current_tracer("a size").blocks)
    # Of each index of the block, all multiples follow each other: the valid ones come first.
    return Dim.of(symbol) * Dim.of(count // step) if is_block or count == step else None


def linear_form(number: Any) -> Linear:
    """An integer as a sum."""
    if not isinstance(number, TileValue):
        return {None: int(number)} if number else {}
    if isinstance(number, Scalar) and number.as_dim is not None:
        return _of_dim(number.as_dim, number)
    if isinstance(number, Scalar) and number.sum_of is not None:
        left, right = number.sum_of
        return _sum(linear_form(left), linear_form(right), 1)
    return _of_value(number.value)


def _of_dim(dim: Dim, number: Scalar) -> Linear:
    if len(dim.symbols) != 1:
        return _of_value(number.value)
    return {dim.symbols[0]: prod(f for f in dim.factors if isinstance(f, int))}


def _of_value(value: Value) -> Linear:
    tracer = current_tracer("a size")
    op = tracer.builder.definition_of(value)
    if isinstance(op, Full):
        return {None: int(op.value)} if op.value else {}
    if isinstance(op, BlockSize):
        return {op.block: 1}
    if isinstance(op, Cast) and op.x.tile.dtype.is_integer:
        return _of_value(op.x)
    if isinstance(op, Elementwise) and op.fn in ("add", "sub", "mul"):
        return _of_operands(op, value)
    is_size = op is None and value.name in tracer.sizes
    return {value.name if is_size else value: 1}


def _of_operands(op: Elementwise, value: Value) -> Linear:
    left, right = map(_of_value, op.args)
    if op.fn != "mul":
        return _sum(left, right, 1 if op.fn == "add" else -1)
    for factor, other in ((left, right), (right, left)):
        if not set(factor) - {None}:
            return _sum({}, other, factor.get(None, 0))
    return {value: 1}


def _sum(left: Linear, right: Linear, scale: int) -> Linear:
    total = dict(left)
    for key, count in right.items():
        total[key] = total.get(key, 0) + scale * count
    return {key: count for key, count in total.items() if count}
