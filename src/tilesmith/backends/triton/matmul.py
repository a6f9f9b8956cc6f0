"""Rules for matrix products. The input precision is always written out."""

from __future__ import annotations

from tilesmith.backends.triton.elementwise import convert
from tilesmith.backends.triton.emit import Emitter
from tilesmith.backends.triton.expressions import Expr, binary, call, subscript
from tilesmith.backends.triton.names import triton_dtype
from tilesmith.dtypes import BF16, F8E4M3, F8E5M2, F16, F32, F64, I8, DType
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.types import ONE, Shape
from tilesmith.ir.values import Value

_DOT_DTYPES = (F16, BF16, F32, F64, F8E4M3, F8E5M2, I8)


def emit_dot(emitter: Emitter, op: Dot) -> None:
    """One matrix product, on tensor cores where the element types allow it."""
    lhs, rhs = emitter.exact(op.lhs), emitter.exact(op.rhs)
    if _has_dot(emitter, op):
        emitter.define(op.result, _dot(emitter, op, lhs, rhs))
    else:
        emitter.define(op.result, _sum_of_products(emitter, op, lhs, rhs))


def _has_dot(emitter: Emitter, op: Dot) -> bool:
    """Whether Triton multiplies these tiles: the contracted axis must fill one instruction."""
    dtype = op.lhs.tile.dtype
    if dtype != op.rhs.tile.dtype or dtype not in _DOT_DTYPES:
        return False
    if F64 in (dtype, op.result.tile.dtype):
        return False
    contracted = emitter.schedule.physical(op.lhs.tile.shape[-1])
    return contracted >= (32 if dtype.bits == 8 else 16)


def _dot(emitter: Emitter, op: Dot, lhs: Expr, rhs: Expr) -> Expr:
    dtype = op.result.tile.dtype
    arguments = [str(lhs), str(rhs)]
    if op.acc is not None:
        arguments.append(str(emitter.exact(op.acc)))
    arguments.append(f'input_precision="{op.precision}"')
    accumulated = _accumulator(op.lhs.tile.dtype, dtype)
    if accumulated != F32:
        arguments.append(f"out_dtype={triton_dtype(accumulated)}")
    return convert(call("tl.dot", *arguments, shape=op.result.tile.shape), accumulated, dtype)


def _accumulator(operand: DType, result: DType) -> DType:
    """What Triton accumulates in: the result's type, where there is such an instruction."""
    if operand.is_integer:
        return result
    return result if result in (F32, F16) else F32


def _sum_of_products(emitter: Emitter, op: Dot, lhs: Expr, rhs: Expr) -> Expr:
    """``sum(lhs[..., :, :, None] * rhs[..., None, :, :])`` in the result's element type."""
    dtype = op.result.tile.dtype
    rank = op.lhs.tile.rank
    left = _widened(convert(lhs, op.lhs.tile.dtype, dtype), op.lhs, rank)
    right = _widened(convert(rhs, op.rhs.tile.dtype, dtype), op.rhs, rank - 2)
    total = call("tl.sum", binary("*", left, right), rank - 1, shape=op.result.tile.shape)
    return total if op.acc is None else binary("+", emitter.exact(op.acc), total)


def _widened(expr: Expr, value: Value, axis: int) -> Expr:
    shape: Shape = value.tile.shape
    return subscript(expr, (axis,), (*shape[:axis], ONE, *shape[axis:]))
