"""``hl.dot_scaled``: products of low-precision matrices whose groups of 32 have a common scale.

Operands are decoded exactly into bfloat16 (float32 where one is float16) and multiplied.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from tilesmith.diagnostics import errors
from tilesmith.diagnostics.wording import kind_of
from tilesmith.dtypes import BF16, F8E4M3, F8E5M2, F16, F32, U8, DType
from tilesmith.frontend.emission import (
    apply,
    broadcast_to,
    cast,
    expand_dims,
    permute,
    reshape,
    unify_dims,
)
from tilesmith.frontend.matmul import product
from tilesmith.frontend.packed_formats import decode_e8m0, decode_pair, reinterpret
from tilesmith.frontend.placement import join_pair
from tilesmith.frontend.sessions import current_tracer
from tilesmith.frontend.tracer import locate
from tilesmith.frontend.values import TileValue, shape_text
from tilesmith.interpreter.torch_dtypes import from_torch
from tilesmith.ir.types import Dim

_NAME = "hl.dot_scaled"
_GROUP = 32
_FORMATS: dict[str, tuple[DType, ...]] = {
    "e2m1": (U8,),
    "e4m3": (F8E4M3, U8),
    "e5m2": (F8E5M2, U8),
    "bf16": (BF16,),
    "fp16": (F16,),
}
"""The element types a format may come in; bytes are read as what the format says."""


@dataclass(frozen=True)
class _Operand:
    """One matrix with its scale; ``axis`` is the contracted one."""

    name: str
    matrix: Any
    scale: Any
    format: Any
    axis: int


def dot_scaled(  # noqa: PLR0913, PLR0917
    mat1: Any,
    mat1_scale: Any,
    mat1_format: str,
    mat2: Any,
    mat2_scale: Any,
    mat2_format: str,
    acc: Any = None,
    out_dtype: torch.dtype | None = None,
) -> TileValue:
    """Product of two matrices with a power of two for each 32 elements along k.

    Example:
        ``acc = hl.dot_scaled(x[tm, :], sx[tm, :], "e4m3", y[:, tn], sy[tn, :], "e2m1", acc=acc)``
    """
    current_tracer(_NAME)
    operands = (
        _Operand("mat1", mat1, mat1_scale, mat1_format, 1),
        _Operand("mat2", mat2, mat2_scale, mat2_format, 0),
    )
    for operand in operands:
        _check(operand)
    # Eight bits of precision hold every format but float16.
    common = F32 if "fp16" in (mat1_format, mat2_format) else BF16
    lhs, rhs = (_scaled(operand, common) for operand in operands)
    if acc is not None and (not isinstance(acc, TileValue) or acc.tile.dtype not in (F16, F32)):
        found = acc.tile.dtype.name if isinstance(acc, TileValue) else kind_of(acc)
        raise _wrong(f"acc is {found}, expected float32 or float16")
    result = product(lhs, rhs, _NAME, acc=acc, precision="ieee")
    return result if out_dtype is None else cast(result, from_torch(out_dtype))


def _wrong(problem: str) -> errors.BaseError:
    return errors.InvalidArgumentKind(function=_NAME, problem=problem, loc=locate())


def _check(operand: _Operand) -> None:
    name, matrix, scale = operand.name, operand.matrix, operand.scale
    if operand.format not in _FORMATS:
        raise errors.InvalidArgumentValue(
            function=_NAME,
            problem=f"{name}_format={operand.format!r} is none of {', '.join(_FORMATS)}",
            loc=locate(),
        )
    allowed = _FORMATS[operand.format]
    if not isinstance(matrix, TileValue) or matrix.tile.dtype not in allowed:
        found = matrix.tile.dtype.name if isinstance(matrix, TileValue) else kind_of(matrix)
        wanted = " or ".join(dtype.name for dtype in allowed)
        raise _wrong(f"{name} is {found}, expected {wanted} for the format {operand.format}")
    if scale is not None and (not isinstance(scale, TileValue) or scale.tile.dtype != U8):
        found = scale.tile.dtype.name if isinstance(scale, TileValue) else kind_of(scale)
        raise _wrong(f"{name}_scale is {found}, expected exponents as bytes (uint8), or None")
    if matrix.tile.rank != 2 or (scale is not None and scale.tile.rank != 2):
        raise _wrong(f"{name} and its scale must be matrices")


def _scaled(operand: _Operand, dtype: DType) -> TileValue:
    matrix = _decoded(operand)
    if operand.scale is None:
        return cast(matrix, dtype)
    scale = decode_e8m0(operand.scale)
    if operand.axis == 0:
        # Scales of the right operand stand by column: [n, k // 32].
        scale = permute(scale, (1, 0))
    scale = _spread(scale, operand.axis, matrix.tile.shape[operand.axis])
    if unify_dims(scale.tile.shape[operand.axis], matrix.tile.shape[operand.axis]) is None:
        raise errors.DotShapeMismatch(
            operation=_NAME,
            left=shape_text(matrix.tile.shape),
            right=f"its scale {shape_text(scale.tile.shape)}",
            loc=locate(),
        )
    scale = broadcast_to(scale, matrix.tile.shape)
    return cast(apply("mul", cast(matrix, F32), scale), dtype)


def _spread(scale: TileValue, axis: int, wanted: Dim) -> TileValue:
    """Each scale 32 times along k, unless it has a column for each element already."""
    shape = scale.tile.shape
    if shape[axis] == wanted:
        return scale
    wide = expand_dims(scale, (axis + 1,))
    repeated = (*shape[: axis + 1], Dim.of(_GROUP), *shape[axis + 1 :])
    joint = (*shape[:axis], shape[axis] * Dim.of(_GROUP), *shape[axis + 1 :])
    return reshape(broadcast_to(wide, repeated), joint)


def _decoded(operand: _Operand) -> TileValue:
    matrix = operand.matrix
    if operand.format != "e2m1":
        return reinterpret(matrix, _FORMATS[operand.format][0])
    pair = join_pair(*decode_pair(matrix))
    rows, columns = matrix.tile.shape
    if operand.axis == 1:
        return reshape(pair, (rows, columns * Dim.of(2)))
    return reshape(permute(pair, (0, 2, 1)), (rows * Dim.of(2), columns))
