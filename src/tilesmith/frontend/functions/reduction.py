"""Torch's reductions and softmax. Half types accumulate in fp32."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import tilesmith.exc as errors
from tilesmith.dtypes import F32, I64, U8
from tilesmith.frontend.functions.promotion import result_dtype
from tilesmith.frontend.functions.shape import resolve_axis
from tilesmith.frontend.language.jagged import lengths_along, reset_lanes
from tilesmith.frontend.refusals import unsupported_argument
from tilesmith.frontend.tracing.emission import (
    Rule,
    apply,
    as_tile,
    cast,
    emit,
    expand_dims,
    full,
    positions_in,
    reduce,
    reshape,
    select,
)
from tilesmith.frontend.tracing.known_sizes import find_counts
from tilesmith.frontend.tracing.tracer import current_tracer
from tilesmith.frontend.tracing.values import TileValue, ValuesAndIndices, shape_text, size_of_dim
from tilesmith.interpreter.torch_dtypes import from_torch
from tilesmith.ir.ops.indexing import Mask
from tilesmith.ir.ops.reduction import ReduceKind


def _axes(x: TileValue, dim: Any, name: str) -> tuple[int, ...]:
    """Axes to reduce, all for None: in descending order, so that earlier ones stay valid."""
    if dim is None or dim == ():
        return tuple(reversed(range(x.tile.rank)))
    dims = dim if isinstance(dim, (tuple, list)) else (dim,)
    if not x.tile.rank and all(d in (0, -1) for d in dims):
        # Eager counts a tensor without dimensions as one of size one.
        return ()
    return tuple(sorted({resolve_axis(x, d, name) for d in dims}, reverse=True))


def _reduce_axes(x: TileValue, axes: tuple[int, ...], kind: ReduceKind, keepdim: bool) -> TileValue:
    x = reset_lanes(x, axes, kind.identity(x.tile.dtype))
    for axis in axes:
        x = reduce(x, axis, kind)
    return expand_dims(x, tuple(sorted(axes))) if keepdim else x


def require_elements(x: TileValue, axes: tuple[int, ...], name: str) -> None:
    """Raise if an axis is known to be empty: no element is the extreme one of none."""
    for axis in axes:
        if x.tile.shape[axis].constant == 0:
            raise errors.EmptyReduction(
                operation=f"torch.{name}", dim=axis, shape=shape_text(x.tile.shape)
            )


def of_elements(name: str, rule: Rule) -> Rule:
    """An extreme element, as users ask for it. Softmax and its kin have an answer without any."""

    def checked(x: TileValue, dim: Any = None, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(dim, TileValue):
            require_elements(x, _axes(x, dim, name), name)
        return rule(x, dim, *args, **kwargs)

    return checked


def sum_(
    x: TileValue,
    dim: Any = None,
    keepdim: bool = False,
    *,
    dtype: Any = None,
    kind: ReduceKind = ReduceKind.SUM,
) -> TileValue:
    """``torch.sum``/``torch.prod``: integers and bools in int64, half types in fp32."""
    summed = x.tile.dtype if x.tile.dtype.is_float else I64
    result = summed if dtype is None else from_torch(dtype)
    wide = cast(x, result.computed)
    return cast(_reduce_axes(wide, _axes(x, dim, kind.value), kind, keepdim), result)


def valid_count(x: TileValue, axes: tuple[int, ...], keepdim: bool = False) -> Any:
    """How many valid elements each reduction combines: an int, or a scalar for partial tiles.

    Lanes of jagged tiles have counts of their own, shaped like the result.
    """
    if lengths_along(x.tile.shape, axes):
        return _reduce_axes(full(1, F32, x.tile.shape), axes, ReduceKind.SUM, keepdim)
    count: Any = 1
    for axis in axes:
        dim = x.tile.shape[axis]
        known = find_counts(x, axis, "mean")
        if known is not None and known.least == known.most:
            size: Any = known.least
        elif dim.symbol in current_tracer("mean").sizes:
            size = size_of_dim(dim)
        else:
            # The tile may be partial: count lanes that are valid.
            ones = full(1, F32, (dim,))
            mask = emit(Mask, ones.tile, x=ones.value, fill=0.0, axes=(0,))
            size = reduce(mask, 0, ReduceKind.SUM)
        count = count * size
    return count


def mean(x: TileValue, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> TileValue:
    """``torch.mean``: divides by the number of valid elements, whatever the block size."""
    result = from_torch(dtype) if dtype is not None else x.tile.dtype
    if not result.is_float:
        raise unsupported_argument("torch.mean", f"a tensor of {x.dtype}")
    axes = _axes(x, dim, "mean")
    total = _reduce_axes(cast(x, result.computed), axes, ReduceKind.SUM, keepdim)
    count = valid_count(x, axes, keepdim)
    if isinstance(count, TileValue):
        count = cast(as_tile(count), total.tile.dtype)
    average = apply("div", total, count)
    average.is_reduced = total.is_reduced
    return cast(average, result)


def extremum(
    x: TileValue, dim: Any = None, keepdim: bool = False, *, kind: ReduceKind
) -> TileValue:
    """``amax``/``amin`` over any axes."""
    return _reduce_axes(x, _axes(x, dim, kind.value), kind, keepdim)


def arg_extremum(
    x: TileValue, dim: Any = None, keepdim: bool = False, *, kind: ReduceKind
) -> TileValue:
    """``argmax``/``argmin``: the first position wins ties."""
    if not x.tile.rank:
        return full(0, I64)
    if dim is None and x.tile.rank > 1:
        return _first_position(x, kind, keepdim)
    axes = _axes(x, 0 if dim is None else dim, kind.value)
    return _reduce_axes(x, axes, kind, keepdim)


def _first_position(x: TileValue, kind: ReduceKind, keepdim: bool) -> TileValue:
    """The smallest row-major position of the extreme element of all, or of the first NaN."""
    position, size = full(0, I64), 1
    for axis in reversed(range(x.tile.rank)):
        extent = x.tile.shape[axis].constant
        if extent is None:
            raise unsupported_argument(
                f"torch.{kind.value}", "dim=None on more than one dimension of a tile"
            )
        along = cast(positions_in(x.tile.shape, axis), I64)
        position = apply("add", apply("mul", along, size), position)
        size *= extent
    axes = _axes(x, None, kind.value)
    best_kind = ReduceKind.MAX if kind is ReduceKind.ARGMAX else ReduceKind.MIN
    best = _reduce_axes(x, axes, best_kind, keepdim=True)
    # NaN equals nothing, not even itself, and eager takes the first one.
    is_best = apply("or", apply("eq", x, best), apply("ne", x, x))
    positions = apply("where", is_best, position, size, dtype=I64)
    return _reduce_axes(positions, axes, ReduceKind.MIN, keepdim)


def max_or_min(x: TileValue, dim: Any = None, keepdim: bool = False, *, kind: ReduceKind) -> Any:
    """``torch.max``/``torch.min``: of all elements, along a dimension, or of two tensors."""
    if isinstance(dim, TileValue):
        return apply(f"{kind.value}imum", x, dim, dtype=result_dtype("maximum", x, dim))
    values = extremum(x, dim, keepdim and dim is not None, kind=kind)
    if dim is None:
        return values
    indices = arg_extremum(x, dim, keepdim, kind=ReduceKind(f"arg{kind.value}"))
    return ValuesAndIndices(values, indices)


def truth_reduction(
    x: TileValue, dim: Any = None, keepdim: bool = False, *, kind: ReduceKind
) -> TileValue:
    """``any``/``all``: numbers count as whether they are not zero; of bytes torch makes bytes."""
    found = extremum(x.bool(), dim, keepdim, kind=kind)
    return cast(found, U8) if x.tile.dtype == U8 else found


def var_mean(
    x: TileValue,
    dim: Any = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> tuple[TileValue, TileValue]:
    """``torch.var_mean``: the two-pass form, exact for any extent."""
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    if correction is None:
        correction = 1 if unbiased is None else int(unbiased)
    wide = cast(x, x.tile.dtype.computed)
    axes = _axes(x, dim, "var_mean")
    average = mean(wide, axes, keepdim=True)
    centred = wide - average
    total = _reduce_axes(centred * centred, axes, ReduceKind.SUM, keepdim)
    variance = apply("div", total, _degrees(valid_count(x, axes, keepdim), correction, total))
    kept = average if keepdim else mean(wide, axes)
    return cast(variance, x.tile.dtype), cast(kept, x.tile.dtype)


def _degrees(count: Any, correction: float, total: TileValue) -> Any:
    """Degrees of freedom, never less than none."""
    if not isinstance(count, TileValue):
        return float(max(0, count - correction))
    return apply("maximum", cast(count - correction, total.tile.dtype), 0.0)


def std_mean(x: TileValue, *args: Any, **kwargs: Any) -> tuple[TileValue, TileValue]:
    """``torch.std_mean``: the root is taken before the variance is rounded."""
    dtype = x.tile.dtype
    variance, average = var_mean(cast(x, dtype.computed), *args, **kwargs)
    return cast(apply("sqrt", variance), dtype), cast(average, dtype)


class MinAndMax(NamedTuple):
    """The two results of ``torch.aminmax``."""

    min: TileValue
    max: TileValue


def aminmax(x: TileValue, *, dim: Any = None, keepdim: bool = False) -> MinAndMax:
    """``torch.aminmax``: two reductions of one value."""
    require_elements(x, _axes(x, dim, "aminmax"), "aminmax")
    kinds = (ReduceKind.MIN, ReduceKind.MAX)
    return MinAndMax(*(extremum(x, dim, keepdim, kind=kind) for kind in kinds))


def nansum(x: TileValue, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> TileValue:
    """``torch.nansum``: NaN counts as zero."""
    if x.tile.dtype.is_float:
        x = select(apply("ne", x, x), 0.0, x)
    return sum_(x, dim, keepdim, dtype=dtype)


def nanmean(
    x: TileValue, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> TileValue:
    """``torch.nanmean``: the mean of what is not NaN."""
    result = from_torch(dtype) if dtype is not None else x.tile.dtype
    wide = cast(x, result.computed)
    count = sum_(cast(apply("eq", wide, wide), wide.tile.dtype), dim, keepdim)
    return cast(apply("div", nansum(wide, dim, keepdim), count), result)


def softmax(x: TileValue, dim: Any = None, *_: Any, dtype: Any = None, **__: Any) -> TileValue:
    """``torch.softmax`` over a resident axis, computed in fp32 for half types."""
    result = from_torch(dtype) if dtype is not None else x.tile.dtype
    shifted = _shift_by_max(cast(x, result.computed), dim)
    exponentials = apply("exp", shifted)
    total = sum_(exponentials, dim, keepdim=True)
    # The total is at least 1, so one division for a row is as safe as one for each element.
    return cast(apply("mul", exponentials, apply("div", 1.0, total)), result)


def log_softmax(x: TileValue, dim: Any = None, *_: Any, dtype: Any = None, **__: Any) -> TileValue:
    """``torch.log_softmax`` over a resident axis."""
    result = from_torch(dtype) if dtype is not None else x.tile.dtype
    shifted = _shift_by_max(cast(x, result.computed), dim)
    total = sum_(apply("exp", shifted), dim, keepdim=True)
    return cast(apply("sub", shifted, apply("log", total)), result)


def logsumexp(x: TileValue, dim: Any, keepdim: bool = False) -> TileValue:
    """``torch.logsumexp``, safe for rows of -inf."""
    x = cast(x, result_dtype("exp", x))
    wide = cast(x, x.tile.dtype.computed)
    peak = extremum(wide, dim, keepdim=True, kind=ReduceKind.MAX)
    # A row of -inf has that as its peak; subtracting it would give NaN.
    finite = select(apply("isinf", peak), 0.0, peak)
    total = sum_(apply("exp", apply("sub", wide, finite)), dim, keepdim=True)
    result = apply("add", apply("log", total), finite)
    if not keepdim:
        axes = _axes(x, dim, "logsumexp")
        shape = tuple(d for axis, d in enumerate(result.tile.shape) if axis not in axes)
        result = reshape(result, shape)
    return cast(result, x.tile.dtype)


def _shift_by_max(x: TileValue, dim: Any) -> TileValue:
    if dim is None:
        raise errors.InvalidReductionDim(operation="softmax", dim="None")
    return apply("sub", x, extremum(x, dim, keepdim=True, kind=ReduceKind.MAX))


REDUCTIONS: dict[str, Rule] = {
    "sum": sum_, "mean": mean, "prod": partial(sum_, kind=ReduceKind.PROD),
    "amax": of_elements("amax", partial(extremum, kind=ReduceKind.MAX)),
    "amin": of_elements("amin", partial(extremum, kind=ReduceKind.MIN)),
    "max": of_elements("max", partial(max_or_min, kind=ReduceKind.MAX)),
    "min": of_elements("min", partial(max_or_min, kind=ReduceKind.MIN)),
    "argmax": of_elements("argmax", partial(arg_extremum, kind=ReduceKind.ARGMAX)),
    "argmin": of_elements("argmin", partial(arg_extremum, kind=ReduceKind.ARGMIN)),
    "any": partial(truth_reduction, kind=ReduceKind.ANY),
    "all": partial(truth_reduction, kind=ReduceKind.ALL),
    "count_nonzero": lambda x, dim=None: sum_(cast(x.bool(), I64), dim),
    "nansum": nansum, "nanmean": nanmean, "aminmax": aminmax,
    "var_mean": var_mean, "std_mean": std_mean,
    "var": lambda *args, **kwargs: var_mean(*args, **kwargs)[0],
    "std": lambda *args, **kwargs: std_mean(*args, **kwargs)[0],
    "softmin": lambda x, *args, **kwargs: softmax(apply("neg", x), *args, **kwargs),
    "softmax": softmax, "log_softmax": log_softmax, "logsumexp": logsumexp,
}  # fmt: skip
