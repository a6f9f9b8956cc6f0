"""Lengths of vectors and matrices, distances, and what is normalised by them."""

from __future__ import annotations

from typing import Any

from tilesmith.diagnostics import errors
from tilesmith.dtypes import DType
from tilesmith.frontend.composition import Rule, float_dtype
from tilesmith.frontend.elementwise import divide, multiply, truth
from tilesmith.frontend.emission import apply, as_tile, cast
from tilesmith.frontend.promotion import compute_dtype
from tilesmith.frontend.reduction import extremum, sum_
from tilesmith.frontend.tracer import locate
from tilesmith.frontend.values import TileValue
from tilesmith.interpreter.torch_dtypes import from_torch
from tilesmith.ir.ops.reduction import ReduceKind

INFINITY = float("inf")


def vector_norm(
    x: TileValue, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> TileValue:
    """``torch.linalg.vector_norm`` of any order."""
    x = x if dtype is None else cast(x, from_torch(dtype))
    wide = cast(x, compute_dtype(x.tile.dtype))
    return cast(_length(wide, ord, dim, keepdim), x.tile.dtype)


def _length(wide: TileValue, order: Any, dim: Any, keepdim: bool) -> TileValue:
    if order == 0:
        return sum_(cast(truth(wide), wide.tile.dtype), dim, keepdim)
    if order == 2:
        return apply("sqrt", sum_(multiply(wide, wide), dim, keepdim))
    magnitude = apply("abs", wide)
    if order == 1:
        return sum_(magnitude, dim, keepdim)
    if abs(order) == INFINITY:
        kind = ReduceKind.MAX if order > 0 else ReduceKind.MIN
        return extremum(kind)(magnitude, dim, keepdim)
    total = sum_(apply("pow", magnitude, float(order)), dim, keepdim)
    return apply("pow", total, 1 / order)


def matrix_norm(
    x: TileValue,
    ord: Any = "fro",
    dim: Any = (-2, -1),
    keepdim: bool = False,
    *,
    dtype: Any = None,
) -> TileValue:
    """``torch.linalg.matrix_norm`` but for the norms of singular values."""
    x = x if dtype is None else cast(x, from_torch(dtype))
    wide = cast(x, compute_dtype(x.tile.dtype))
    if ord == "fro":
        return cast(_length(wide, 2, dim, keepdim), x.tile.dtype)
    if ord not in (1, -1, INFINITY, -INFINITY):
        raise errors.UnsupportedTorchArgument(
            name="torch.linalg.matrix_norm", argument=f"ord={ord!r}", loc=locate()
        )
    summed, compared = (axis % x.tile.rank for axis in (dim if abs(ord) == 1 else dim[::-1]))
    sums = sum_(apply("abs", wide), summed, keepdim=True)
    kind = ReduceKind.MAX if ord > 0 else ReduceKind.MIN
    result = extremum(kind)(sums, (summed, compared), keepdim)
    return cast(result, x.tile.dtype)


def linalg_norm(
    x: TileValue, ord: Any = None, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> TileValue:
    """``torch.linalg.norm``: of vectors or matrices, as the arguments say."""
    axes = dim if isinstance(dim, (tuple, list)) else None if dim is None else (dim,)
    if ord is None:
        return vector_norm(x, 2, axes, keepdim, dtype=dtype)
    if isinstance(ord, str) or (len(axes) if axes is not None else x.tile.rank) == 2:
        return matrix_norm(x, ord, axes or (0, 1), keepdim, dtype=dtype)
    return vector_norm(x, ord, axes, keepdim, dtype=dtype)


def norm(
    x: TileValue, p: Any = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> TileValue:
    """``torch.norm`` but for the nuclear one."""
    if p == "nuc":
        raise errors.UnsupportedTorchArgument(name="torch.norm", argument="p='nuc'", loc=locate())
    order = 2 if p in ("fro", None) else p
    return vector_norm(x, order, dim, keepdim, dtype=dtype)


def normalize(x: TileValue, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> TileValue:
    """``F.normalize``."""
    length = norm(cast(x, compute_dtype(x.tile.dtype)), p, dim, keepdim=True)
    return cast(divide(cast(x, length.tile.dtype), apply("maximum", length, eps)), x.tile.dtype)


def _wide(*operands: TileValue) -> tuple[DType, list[TileValue]]:
    dtype = float_dtype(*operands)
    return dtype, [as_tile(operand, compute_dtype(dtype)) for operand in operands]


def cosine_similarity(x1: TileValue, x2: TileValue, dim: int = 1, eps: float = 1e-8) -> TileValue:
    """The cosine of the angle between two vectors."""
    dtype, (x, y) = _wide(x1, x2)
    left = apply("maximum", _length(x, 2, dim, True), eps)
    right = apply("maximum", _length(y, 2, dim, True), eps)
    return cast(sum_(apply("mul", apply("div", x, left), apply("div", y, right)), dim), dtype)


def pairwise_distance(
    x1: TileValue, x2: TileValue, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> TileValue:
    """The length of the difference along the last axis."""
    dtype, (x, y) = _wide(x1, x2)
    return cast(_length(apply("add", apply("sub", x, y), eps), p, -1, keepdim), dtype)


def dist(x1: TileValue, x2: TileValue, p: float = 2) -> TileValue:
    """The length of the difference of all elements."""
    dtype, (x, y) = _wide(x1, x2)
    return cast(_length(apply("sub", x, y), p, None, False), dtype)


NORMS: dict[str, Rule] = {
    "norm": norm, "normalize": normalize, "linalg_vector_norm": vector_norm,
    "linalg_norm": linalg_norm, "linalg_matrix_norm": matrix_norm,
    "cosine_similarity": cosine_similarity, "pairwise_distance": pairwise_distance, "dist": dist,
}  # fmt: skip
