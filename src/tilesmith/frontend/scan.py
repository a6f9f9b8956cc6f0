"""Running sums, products and extremes: ``torch.cumsum`` and its like, ``hl.cumsum``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilesmith.diagnostics import errors
from tilesmith.diagnostics.wording import kind_of
from tilesmith.dtypes import I32, I64
from tilesmith.frontend.emission import apply, cast, expand_dims, full
from tilesmith.frontend.jagged import reset_lanes
from tilesmith.frontend.promotion import compute_dtype
from tilesmith.frontend.reduction import ValuesAndIndices, resolve_axis
from tilesmith.frontend.sessions import current_tracer
from tilesmith.frontend.slices import arange
from tilesmith.frontend.tracer import locate
from tilesmith.frontend.values import TileValue
from tilesmith.interpreter.torch_dtypes import from_torch
from tilesmith.ir.ops.reduction import ReduceKind
from tilesmith.ir.ops.scan import Scan

Rule = Callable[..., Any]


def scan(x: TileValue, dim: Any, kind: ReduceKind, *, reverse: bool = False) -> TileValue:
    """Each element combined with those before it; sums and products of half types in fp32."""
    axis = resolve_axis(x, dim, f"cum{kind.value}")
    is_exact = kind in (ReduceKind.MAX, ReduceKind.MIN)
    # Bools are ordered like the integers 0 and 1.
    dtype = I32 if x.tile.dtype.is_bool else x.tile.dtype
    wide = cast(x, dtype if is_exact else compute_dtype(dtype))
    wide = reset_lanes(wide, (axis,), kind.identity(wide.tile.dtype))
    value = current_tracer(kind.value).create(
        Scan, wide.tile, x=wide.value, axis=axis, kind=kind.value, reverse=bool(reverse)
    )
    return cast(TileValue(value, is_reduced=x.is_reduced), x.tile.dtype)


def _cumulative(kind: ReduceKind) -> Rule:
    """``torch.cumsum``/``torch.cumprod``: integers and bools in int64."""

    def rule(x: TileValue, dim: Any, *, dtype: Any = None) -> TileValue:
        natural = x.tile.dtype if x.tile.dtype.is_float else I64
        result = natural if dtype is None else from_torch(dtype)
        if not x.tile.rank and dim in (0, -1):
            return cast(x, result)
        return cast(scan(cast(x, compute_dtype(result)), dim, kind), result)

    return rule


def _cumulative_extreme(kind: ReduceKind) -> Rule:
    """``torch.cummax``/``torch.cummin``: of equal elements the last position, as in eager."""

    def rule(x: TileValue, dim: Any) -> ValuesAndIndices:
        if not x.tile.rank and dim in (0, -1):
            return ValuesAndIndices(x, full(0, I64))
        axis = resolve_axis(x, dim, f"cum{kind.value}")
        values = scan(x, axis, kind)
        is_new = apply("eq", x, values)
        if x.tile.dtype.is_float:
            is_new = apply("or", is_new, apply("isnan", cast(x, compute_dtype(x.tile.dtype))))
        size, rank = x.tile.shape[axis], x.tile.rank
        line = full(0, I32, (size,)) if size.is_one else arange(size)
        index = expand_dims(line, tuple(other for other in range(rank) if other != axis))
        positions = scan(apply("where", is_new, index, 0, dtype=I32), axis, ReduceKind.MAX)
        return ValuesAndIndices(values, cast(positions, I64))

    return rule


def cumsum(x: TileValue, dim: int, reverse: bool = False) -> TileValue:
    """Running sum along ``dim``, of the type of ``x`` (bools are counted in int64).

    Example:
        ``out[t, :] = hl.cumsum(x[t, :], dim=1, reverse=True)``
    """
    return scan(_checked(x, "hl.cumsum"), dim, ReduceKind.SUM, reverse=reverse)


def cumprod(x: TileValue, dim: int, reverse: bool = False) -> TileValue:
    """Running product along ``dim``, of the type of ``x`` (of bools in int64).

    Example:
        ``out[t, :] = hl.cumprod(x[t, :], dim=1)``
    """
    return scan(_checked(x, "hl.cumprod"), dim, ReduceKind.PROD, reverse=reverse)


def _checked(x: Any, function: str) -> TileValue:
    current_tracer(function)
    if not isinstance(x, TileValue):
        raise errors.InvalidArgumentKind(
            function=function, problem=f"{kind_of(x)} is no device value", loc=locate()
        )
    return cast(x, I64) if x.tile.dtype.is_bool else x


SCANS: dict[str, Rule] = {
    "cumsum": _cumulative(ReduceKind.SUM),
    "cumprod": _cumulative(ReduceKind.PROD),
    "cummax": _cumulative_extreme(ReduceKind.MAX),
    "cummin": _cumulative_extreme(ReduceKind.MIN),
}
