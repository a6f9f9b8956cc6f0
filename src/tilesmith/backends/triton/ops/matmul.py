"""Rules for matrix products. The input precision is always written out."""

from __future__ import annotations

from tilesmith.analysis.product_operands import least_contracted
from tilesmith.backends.triton.emission.emitter import Emitter
from tilesmith.backends.triton.emission.expressions import Expr, call
from tilesmith.backends.triton.emission.spelling import triton_dtype
from tilesmith.backends.triton.ops.elementwise import convert
from tilesmith.dtypes import BF16, F8E4M3, F8E5M2, F16, F32, F64, I8, I32, DType
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.types import ONE, Shape, Value
from tilesmith.targets import Target

_DOT_DTYPES = (F16, BF16, F32, F64, F8E4M3, F8E5M2, I8)


def emit_dot(emitter: Emitter, op: Dot) -> None:
    """One matrix product, by Triton's own where it takes these tiles."""
    # The type both operands are multiplied in.
    lhs, rhs = op.lhs.tile.dtype, op.rhs.tile.dtype
    operand = F64 if op.result.tile.dtype == F64 else lhs if lhs == rhs else None
    if operand in _DOT_DTYPES and _fills_instruction(emitter, op):
        product, dtype = _dot(emitter, op, operand)
    else:
        product, dtype = _sum_of_products(emitter, op)
    emitter.define(op.result, convert(product, dtype, op.result.tile.dtype))


def _fills_instruction(emitter: Emitter, op: Dot) -> bool:
    contracted = emitter.schedule.physical(op.lhs.tile.shape[-1])
    # A single column is repeated over the lanes of a matrix instruction, and a later sum over it
    # would count the copies.
    has_lines = not any(dim.is_one for dim in op.result.tile.shape[-2:])
    return has_lines and contracted >= least_contracted(op, emitter.uses.defining)


def _precision(op: Dot, target: Target) -> str:
    """The precision asked for; AMD rounds fp32 operands on gfx942 only and never splits them."""
    is_known = target.kind != "hip" or (op.precision == "tf32" and target.arch == "gfx942")
    return op.precision if is_known else "ieee"


def _dot(emitter: Emitter, op: Dot, operand: DType) -> tuple[Expr, DType]:
    result = op.result.tile.dtype
    # Triton accumulates in the result's type, where there is such an instruction.
    accumulated = I32 if operand.is_integer else result if result in (F32, F16, F64) else F32
    # A wider integer accumulator would not survive the way through 32 bits.
    fuses = op.acc is not None and not (operand.is_integer and result != I32)
    arguments = [_converted(emitter, value, operand) for value in (op.lhs, op.rhs)]
    if op.acc is not None and fuses:
        arguments.append(convert(emitter.exact(op.acc), result, accumulated))
    options = [f'input_precision="{_precision(op, emitter.schedule.target)}"']
    if accumulated != F32:
        options.append(f"out_dtype={triton_dtype(accumulated)}")
    product = call("tl.dot", *arguments, *options, shape=op.result.tile.shape)
    if op.acc is None or fuses:
        return product, accumulated
    return emitter.exact(op.acc).infix("+", convert(product, accumulated, result)), result


def _sum_of_products(emitter: Emitter, op: Dot) -> tuple[Expr, DType]:
    """``sum(lhs[..., :, None, :] * rhs^T[..., None, :, :], -1)``, for small or unusual tiles.

    The contracted axis stands last: a sum of products over the axis between the two others is what
    Triton takes for a matrix product again, whatever its size and precision.
    """
    result = op.result.tile.dtype
    dtype = F32 if result.is_low_precision_float else result
    rank = op.lhs.tile.rank
    if op.lhs.tile.shape[-1].is_one:
        left, right = (_converted(emitter, x, dtype) for x in (op.lhs, op.rhs))
        total = left.infix("*", right)
        return _added(emitter, op, total, dtype)
    left = _widened(_converted(emitter, op.lhs, dtype), op.lhs.tile.shape, rank - 1)
    *batch, k, n = op.rhs.tile.shape
    order = (*range(rank - 2), rank - 1, rank - 2)
    columns = call("tl.permute", _converted(emitter, op.rhs, dtype), order, shape=(*batch, n, k))
    right = _widened(columns, (*batch, n, k), rank - 2)
    total = call("tl.sum", left.infix("*", right), rank, shape=op.result.tile.shape)
    return _added(emitter, op, total, dtype)


def _converted(emitter: Emitter, value: Value, dtype: DType) -> Expr:
    return convert(emitter.exact(value), value.tile.dtype, dtype)


def _added(emitter: Emitter, op: Dot, product: Expr, dtype: DType) -> tuple[Expr, DType]:
    if op.acc is None:
        return product, dtype
    return _converted(emitter, op.acc, dtype).infix("+", product), dtype


def _widened(expr: Expr, shape: Shape, axis: int) -> Expr:
    return expr.subscript((axis,), (*shape[:axis], ONE, *shape[axis:]))
