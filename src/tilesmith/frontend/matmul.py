"""Matrix products: ``hl.dot`` and torch's matmul family."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tilesmith.diagnostics import errors
from tilesmith.diagnostics.wording import kind_of
from tilesmith.dtypes import F16, F32, F64, I8, I32, DType
from tilesmith.frontend.elementwise import add
from tilesmith.frontend.emission import as_tile, broadcast_to, cast, unify_dims
from tilesmith.frontend.promotion import result_dtype
from tilesmith.frontend.sessions import current_tracer
from tilesmith.frontend.shape import reverse_axes
from tilesmith.frontend.tracer import locate
from tilesmith.frontend.values import TileValue, shape_text
from tilesmith.interpreter.torch_dtypes import from_torch
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.types import Shape, TileType

Rule = Callable[..., Any]
MATRIX_RANKS = (2, 3)


def _check_shapes(
    lhs: TileValue, rhs: TileValue, operation: str
) -> tuple[TileValue, TileValue, Shape]:
    """Operands with equal batch and contracted axes, and the shape of their product."""
    if lhs.tile.rank != rhs.tile.rank or lhs.tile.rank not in MATRIX_RANKS:
        raise _mismatch(lhs, rhs, operation)
    inner = unify_dims(lhs.tile.shape[-1], rhs.tile.shape[-2])
    if inner is None or (lhs.tile.shape[-1].is_one != rhs.tile.shape[-2].is_one):
        raise _mismatch(lhs, rhs, operation)
    batch: Shape = ()
    if lhs.tile.rank == MATRIX_RANKS[1]:
        unified = unify_dims(lhs.tile.shape[0], rhs.tile.shape[0])
        if unified is None:
            raise errors.DotBatchDimensionMismatch(
                left=str(lhs.tile.shape[0]), right=str(rhs.tile.shape[0]), loc=locate()
            )
        batch = (unified,)
    lhs = broadcast_to(lhs, (*batch, lhs.tile.shape[-2], inner))
    rhs = broadcast_to(rhs, (*batch, inner, rhs.tile.shape[-1]))
    return lhs, rhs, (*batch, lhs.tile.shape[-2], rhs.tile.shape[-1])


def _mismatch(lhs: TileValue, rhs: TileValue, operation: str) -> errors.BaseError:
    return errors.DotShapeMismatch(
        operation=operation,
        left=shape_text(lhs.tile.shape),
        right=shape_text(rhs.tile.shape),
        loc=locate(),
    )


def _accumulator_dtype(dtype: DType) -> DType:
    if dtype.is_float:
        return F64 if dtype == F64 else F32
    return I32


def product(
    lhs: TileValue,
    rhs: TileValue,
    operation: str,
    *,
    acc: TileValue | None = None,
    dtype: DType | None = None,
) -> TileValue:
    """One ``Dot`` op. The result has the accumulator's type.

    Else ``dtype`` or the accumulation type.
    """
    tracer = current_tracer(operation)
    common = result_dtype("mul", lhs, rhs) if lhs.tile.dtype != rhs.tile.dtype else lhs.tile.dtype
    lhs, rhs, shape = _check_shapes(cast(lhs, common), cast(rhs, common), operation)
    wide = _accumulator_dtype(common)
    if acc is not None:
        wide = acc.tile.dtype
        acc = broadcast_to(acc, shape)
    value = tracer.create(
        Dot,
        TileType(wide, shape),
        lhs=lhs.value,
        rhs=rhs.value,
        acc=acc.value if acc is not None else None,
        precision=tracer.options.dot_precision if common == F32 else "ieee",
    )
    result = TileValue(value)
    return result if acc is not None or dtype is None else cast(result, dtype)


def dot(
    mat1: TileValue, mat2: TileValue, acc: Any = None, out_dtype: torch.dtype | None = None
) -> TileValue:
    """Product of two matrices (or batches), accumulated in fp32 (int32 for int8).

    Example:
        ``acc = hl.dot(x[tm, tk], y[tk, tn], acc=acc)``
    """
    current_tracer("hl.dot")
    for operand in (mat1, mat2):
        if not isinstance(operand, TileValue):
            raise errors.InvalidArgumentKind(
                function="hl.dot",
                problem=f"{kind_of(operand)} is no device value",
                loc=locate(),
            )
    dtypes = (mat1.tile.dtype, mat2.tile.dtype)
    if any(not (dtype.is_float or dtype == I8) for dtype in dtypes):
        raise errors.UnsupportedDotDtype(left=str(mat1.dtype), right=str(mat2.dtype), loc=locate())
    if acc is None:
        return product(
            mat1, mat2, "hl.dot", dtype=None if out_dtype is None else from_torch(out_dtype)
        )
    if acc.tile.dtype not in (F16, F32, F64, I32):
        raise errors.InvalidArgumentKind(
            function="hl.dot", problem=f"acc has dtype {acc.dtype}, expected float32", loc=locate()
        )
    return product(mat1, mat2, "hl.dot", acc=acc)


def torch_product(name: str) -> Rule:
    """``mm``, ``bmm``, ``matmul``: accumulated in fp32, rounded to torch's result type."""

    def rule(lhs: TileValue, rhs: TileValue, out_dtype: torch.dtype | None = None) -> TileValue:
        lhs, rhs = as_tile(lhs), as_tile(rhs)
        result = lhs.tile.dtype if out_dtype is None else from_torch(out_dtype)
        if lhs.tile.dtype != rhs.tile.dtype:
            raise errors.UnsupportedTorchArgument(
                name=f"torch.{name}", argument=f"dtypes {lhs.dtype} and {rhs.dtype}", loc=locate()
            )
        return product(lhs, rhs, f"torch.{name}", dtype=result)

    return rule


def accumulated_product(name: str) -> Rule:
    """``addmm``, ``baddbmm``: accumulated in the accumulator's type, one fused op."""

    def rule(
        acc: TileValue, lhs: TileValue, rhs: TileValue, *, beta: Any = 1, alpha: Any = 1
    ) -> TileValue:
        if beta != 1 or alpha != 1:
            raise errors.UnsupportedTorchArgument(
                name=f"torch.{name}", argument="alpha or beta", loc=locate()
            )
        acc, lhs, rhs = as_tile(acc), as_tile(lhs), as_tile(rhs)
        if acc.tile.dtype.is_low_precision_float:
            wide = product(lhs, rhs, f"torch.{name}", acc=cast(acc, F32))
            return cast(wide, acc.tile.dtype)
        return product(lhs, rhs, f"torch.{name}", acc=acc)

    return rule


def linear(x: TileValue, weight: TileValue, bias: Any = None) -> TileValue:
    """``F.linear``."""
    result = torch_product("linear")(x, reverse_axes(weight))
    return result if bias is None else add(result, bias)


MATMULS: dict[str, Rule] = {
    "mm": torch_product("mm"), "bmm": torch_product("bmm"), "matmul": torch_product("matmul"),
    "addmm": accumulated_product("addmm"), "baddbmm": accumulated_product("baddbmm"),
    "linear": linear,
}  # fmt: skip
