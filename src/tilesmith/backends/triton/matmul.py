"""Rules for matrix products. The input precision is always written out."""

from __future__ import annotations

from tilesmith.backends.triton.elementwise import convert
from tilesmith.backends.triton.emit import Emitter
from tilesmith.backends.triton.expressions import Expr, binary, call, subscript
from tilesmith.backends.triton.names import triton_dtype
from tilesmith.dtypes import BF16, F8E4M3, F8E5M2, F16, F32, F64, I8, I32, DType
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.types import ONE, Shape
from tilesmith.ir.values import Value
from tilesmith.targets import Target

_DOT_DTYPES = (F16, BF16, F32, F64, F8E4M3, F8E5M2, I8)


def emit_dot(emitter: Emitter, op: Dot) -> None:
    """One matrix product, by Triton's own where it takes these tiles."""
    operand = _operand_dtype(op)
    if operand in _DOT_DTYPES and _fills_instruction(emitter, op, operand):
        product, dtype = _dot(emitter, op, operand)
    else:
        product, dtype = _sum_of_products(emitter, op)
    emitter.define(op.result, convert(product, dtype, op.result.tile.dtype))


def _operand_dtype(op: Dot) -> DType | None:
    """The type both operands are multiplied in."""
    if op.result.tile.dtype == F64:
        return F64
    return op.lhs.tile.dtype if op.lhs.tile.dtype == op.rhs.tile.dtype else None


def _fills_instruction(emitter: Emitter, op: Dot, dtype: DType) -> bool:
    contracted = emitter.schedule.physical(op.lhs.tile.shape[-1])
    return contracted >= (32 if dtype.bits == 8 else 16)


def _precision(op: Dot, target: Target) -> str:
    """The precision asked for; AMD rounds fp32 operands on gfx942 only and never splits them."""
    is_known = target.kind != "hip" or (op.precision == "tf32" and target.arch == "gfx942")
    return op.precision if is_known else "ieee"


def _accumulator(operand: DType, result: DType) -> DType:
    """What Triton accumulates in: the result's type, where there is such an instruction."""
    if operand.is_integer:
        return I32
    return result if result in (F32, F16, F64) else F32


def _dot(emitter: Emitter, op: Dot, operand: DType) -> tuple[Expr, DType]:
    result = op.result.tile.dtype
    accumulated = _accumulator(operand, result)
    # A wider integer accumulator would not survive the way through 32 bits.
    fuses = op.acc is not None and not (operand.is_integer and result != I32)
    arguments = [
        convert(emitter.exact(value), value.tile.dtype, operand) for value in (op.lhs, op.rhs)
    ]
    if op.acc is not None and fuses:
        arguments.append(convert(emitter.exact(op.acc), result, accumulated))
    options = [f'input_precision="{_precision(op, emitter.schedule.target)}"']
    if accumulated != F32:
        options.append(f"out_dtype={triton_dtype(accumulated)}")
    product = call("tl.dot", *arguments, *options, shape=op.result.tile.shape)
    if op.acc is None or fuses:
        return product, accumulated
    return binary("+", emitter.exact(op.acc), convert(product, accumulated, result)), result


def _sum_of_products(emitter: Emitter, op: Dot) -> tuple[Expr, DType]:
    """``sum(lhs[..., :, :, None] * rhs[..., None, :, :])``, for tiles too small or too unusual."""
    result = op.result.tile.dtype
    dtype = F32 if result.is_low_precision_float else result
    rank = op.lhs.tile.rank
    left = _widened(convert(emitter.exact(op.lhs), op.lhs.tile.dtype, dtype), op.lhs, rank)
    right = _widened(convert(emitter.exact(op.rhs), op.rhs.tile.dtype, dtype), op.rhs, rank - 2)
    total = call("tl.sum", binary("*", left, right), rank - 1, shape=op.result.tile.shape)
    if op.acc is None:
        return total, dtype
    return binary("+", convert(emitter.exact(op.acc), result, dtype), total), dtype


def _widened(expr: Expr, value: Value, axis: int) -> Expr:
    shape: Shape = value.tile.shape
    return subscript(expr, (axis,), (*shape[:axis], ONE, *shape[axis:]))
