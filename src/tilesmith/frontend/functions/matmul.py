"""Matrix products: ``hl.dot``, and the op that torch's matmul family shares with it."""

from __future__ import annotations

from typing import Any

import torch

import tilesmith.exc as errors
from tilesmith.diagnostics.wording import kind_of
from tilesmith.dtypes import BF16, F16, F32, F64, I8, I32, DType
from tilesmith.frontend.functions.promotion import result_dtype
from tilesmith.frontend.language.jagged import keep_lanes, reset_lanes
from tilesmith.frontend.refusals import invalid_kind
from tilesmith.frontend.tracing.emission import (
    broadcast_to,
    cast,
    device_value,
    emit,
    pad_to,
    unify_dims,
)
from tilesmith.frontend.tracing.tracer import current_tracer
from tilesmith.frontend.tracing.values import TileValue, shape_text
from tilesmith.interpreter.torch_dtypes import from_torch
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.types import Shape, TileType

MATRIX_RANKS = (2, 3)


def _check_shapes(
    lhs: TileValue, rhs: TileValue, operation: str
) -> tuple[TileValue, TileValue, Shape]:
    """Operands with equal batch and contracted axes, and the shape of their product."""
    if lhs.tile.rank != rhs.tile.rank or lhs.tile.rank not in MATRIX_RANKS:
        raise mismatch(lhs, rhs, operation)
    inner = unify_dims(lhs.tile.shape[-1], rhs.tile.shape[-2])
    # Unifying would stretch a size of 1; a contraction must not.
    if inner is None or (lhs.tile.shape[-1].is_one != rhs.tile.shape[-2].is_one):
        raise mismatch(lhs, rhs, operation)
    batch: Shape = ()
    if lhs.tile.rank == MATRIX_RANKS[1]:
        unified = unify_dims(lhs.tile.shape[0], rhs.tile.shape[0])
        if unified is None:
            raise errors.DotBatchDimensionMismatch(
                left=str(lhs.tile.shape[0]), right=str(rhs.tile.shape[0])
            )
        batch = (unified,)
    lhs = broadcast_to(lhs, (*batch, lhs.tile.shape[-2], inner))
    rhs = broadcast_to(rhs, (*batch, inner, rhs.tile.shape[-1]))
    return lhs, rhs, (*batch, lhs.tile.shape[-2], rhs.tile.shape[-1])


def mismatch(lhs: TileValue, rhs: TileValue, operation: str) -> errors.BaseError:
    """What is wrong with two operands that cannot be multiplied."""
    texts: dict[str, Any] = {}
    if min(lhs.tile.rank, rhs.tile.rank) < MATRIX_RANKS[0]:
        texts["fix"] = (
            "of a vector make a matrix, v[:, None]; or multiply and add up: (a * v).sum(1)"
        )
    return errors.DotShapeMismatch(
        operation=operation,
        left=shape_text(lhs.tile.shape),
        right=shape_text(rhs.tile.shape),
        **texts,
    )


def type_text(value: Any) -> str:
    """The element type of a device value, or what else it is."""
    return value.tile.dtype.name if isinstance(value, TileValue) else kind_of(value)


def _reset_contracted(lhs: TileValue, rhs: TileValue) -> tuple[TileValue, TileValue]:
    """Lanes past the lengths of a jagged tile count as 0 in the operands that have the lengths."""
    contracted = (lhs.tile.shape[-1],)
    zero = 0.0 if lhs.tile.dtype.is_float else 0
    new = keep_lanes(lhs, contracted, zero), keep_lanes(rhs, contracted, zero)
    if new[0] is lhs and new[1] is rhs:
        # Neither operand has the lengths: this is an error if one should.
        reset_lanes(lhs, (lhs.tile.rank - 1,), zero)
    return new


def _accumulator_dtype(dtype: DType) -> DType:
    if dtype.is_float:
        return F64 if dtype == F64 else F32
    return I32


def common_dtype(lhs: TileValue, rhs: TileValue) -> DType:
    """The type both operands are multiplied in. Of two kinds of float8, float16 holds both."""
    left, right = lhs.tile.dtype, rhs.tile.dtype
    if left == right:
        return left
    small = [dtype.is_float and dtype.bits == 8 for dtype in (left, right)]
    if all(small):
        return F16
    if any(small):
        other = right if small[0] else left
        return other if other.is_float else F32
    return result_dtype("mul", lhs, rhs)


def _accumulates(common: DType, acc: DType) -> bool:
    """Whether devices add products of one type to an accumulator of the other."""
    if acc == F16 and common.is_float:
        return common.bits <= acc.bits and common != BF16
    return acc == _accumulator_dtype(common) or not (common.is_float or acc.is_float)


def _accumulate_widened(
    lhs: TileValue, rhs: TileValue, operation: str, acc: TileValue, common: DType
) -> TileValue:
    """Added in a type that holds both, then rounded to the accumulator's."""
    if not acc.tile.dtype.is_float:
        raise invalid_kind(operation, f"acc is {acc.tile.dtype.name}, expected float32")
    wide = F64 if F64 in (common, acc.tile.dtype) else F32
    factor = common if common.is_float and wide == F32 else wide
    total = product(cast(lhs, factor), cast(rhs, factor), operation, acc=cast(acc, wide))
    return cast(total, acc.tile.dtype)


def product(
    lhs: TileValue,
    rhs: TileValue,
    operation: str,
    *,
    acc: TileValue | None = None,
    dtype: DType | None = None,
    precision: str = "",
) -> TileValue:
    """One ``Dot`` op. The result has the accumulator's type, else ``dtype`` or what it adds in."""
    common = common_dtype(lhs, rhs)
    if acc is not None and not _accumulates(common, acc.tile.dtype):
        return _accumulate_widened(lhs, rhs, operation, acc, common)
    if acc is not None and acc.tile.rank == rhs.tile.rank:
        rhs = pad_to(rhs, rhs.tile.rank - 1, acc.tile.shape[-1])
    lhs, rhs, shape = _check_shapes(cast(lhs, common), cast(rhs, common), operation)
    lhs, rhs = _reset_contracted(lhs, rhs)
    default = current_tracer(operation).options.dot_precision if common == F32 else "ieee"
    fields: dict[str, Any] = {"lhs": lhs.value, "rhs": rhs.value, "precision": precision or default}
    if acc is not None:
        total = TileType(acc.tile.dtype, shape)
        return emit(Dot, total, acc=broadcast_to(acc, shape).value, **fields)
    result = emit(Dot, TileType(_accumulator_dtype(common), shape), **fields)
    return result if dtype is None else cast(result, dtype)


def dot(
    mat1: TileValue, mat2: TileValue, acc: Any = None, out_dtype: torch.dtype | None = None
) -> TileValue:
    """Product of two matrices (or batches), accumulated in fp32 (int32 for int8).

    Example:
        ``acc = hl.dot(x[tm, tk], y[tk, tn], acc=acc)``
    """
    current_tracer("hl.dot")
    for operand in (mat1, mat2):
        device_value(operand, "hl.dot")
    dtypes = (mat1.tile.dtype, mat2.tile.dtype)
    if any(not (dtype.is_float or dtype == I8) for dtype in dtypes):
        raise errors.UnsupportedDotDtype(left=str(mat1.dtype), right=str(mat2.dtype))
    result = None if out_dtype is None else from_torch(out_dtype)
    if acc is None:
        return product(mat1, mat2, "hl.dot", dtype=result)
    wanted = (F16, F32, F64) if mat1.tile.dtype.is_float or mat2.tile.dtype.is_float else (I32,)
    if not isinstance(acc, TileValue) or acc.tile.dtype not in wanted:
        expected = "float32" if F32 in wanted else "int32"
        raise invalid_kind("hl.dot", f"acc is {type_text(acc)}, expected {expected}")
    total = product(mat1, mat2, "hl.dot", acc=acc)
    return total if result is None else cast(total, result)
