"""Lengths and distances of vectors and matrices, and normalisation by them or by statistics.

Layer, RMS, group, instance and batch norm scale and shift afterwards.
"""

from __future__ import annotations

from typing import Any

import tilesmith.exc as errors
from tilesmith.frontend.functions.elementwise import divide, multiply, truth
from tilesmith.frontend.functions.promotion import compute_dtype, widened
from tilesmith.frontend.functions.reduction import extremum, mean, sum_, var_mean
from tilesmith.frontend.tracing.emission import Rule, apply, cast, expand_dims
from tilesmith.frontend.tracing.values import TileValue, dispatch
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
            name="torch.linalg.matrix_norm", argument=f"ord={ord!r}"
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
        raise errors.UnsupportedTorchArgument(name="torch.norm", argument="p='nuc'")
    order = 2 if p in ("fro", None) else p
    return vector_norm(x, order, dim, keepdim, dtype=dtype)


def normalize(x: TileValue, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> TileValue:
    """``F.normalize``: divided by the norm, which counts as ``eps`` at least."""
    length = norm(cast(x, compute_dtype(x.tile.dtype)), p, dim, keepdim=True)
    return cast(divide(cast(x, length.tile.dtype), apply("maximum", length, eps)), x.tile.dtype)


def cosine_similarity(x1: TileValue, x2: TileValue, dim: int = 1, eps: float = 1e-8) -> TileValue:
    """The cosine of the angle between two vectors."""
    dtype, (x, y) = widened(x1, x2)
    left = apply("maximum", _length(x, 2, dim, True), eps)
    right = apply("maximum", _length(y, 2, dim, True), eps)
    return cast(sum_(apply("mul", apply("div", x, left), apply("div", y, right)), dim), dtype)


def pairwise_distance(
    x1: TileValue, x2: TileValue, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> TileValue:
    """The length of the difference along the last axis."""
    dtype, (x, y) = widened(x1, x2)
    return cast(_length(apply("add", apply("sub", x, y), eps), p, -1, keepdim), dtype)


def dist(x1: TileValue, x2: TileValue, p: float = 2) -> TileValue:
    """The length of the difference of all elements."""
    dtype, (x, y) = widened(x1, x2)
    return cast(_length(apply("sub", x, y), p, None, False), dtype)


NORMS: dict[str, Rule] = {
    "norm": norm, "normalize": normalize, "linalg_vector_norm": vector_norm,
    "linalg_norm": linalg_norm, "linalg_matrix_norm": matrix_norm,
    "cosine_similarity": cosine_similarity, "pairwise_distance": pairwise_distance, "dist": dist,
}  # fmt: skip


def layer_norm(
    x: TileValue, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> TileValue:
    """``F.layer_norm`` over the trailing axes."""
    axes = tuple(range(x.tile.rank - len(normalized_shape), x.tile.rank))
    wide = cast(x, compute_dtype(x.tile.dtype))
    return _affine(_normalized(wide, axes, eps), weight, bias, x)


def rms_norm(
    x: TileValue, normalized_shape: Any, weight: Any = None, eps: float | None = None
) -> TileValue:
    """``F.rms_norm`` over the trailing axes."""
    axes = tuple(range(x.tile.rank - len(normalized_shape), x.tile.rank))
    wide = cast(x, compute_dtype(x.tile.dtype))
    # Torch takes the machine epsilon of the type that it computes in.
    epsilon = 2.0 ** (1 - wide.tile.dtype.precision) if eps is None else eps
    mean_square = mean(multiply(wide, wide), axes, keepdim=True)
    return _affine(
        apply("mul", wide, apply("rsqrt", apply("add", mean_square, epsilon))), weight, None, x
    )


def _affine(y: TileValue, weight: Any, bias: Any, like: TileValue) -> TileValue:
    if weight is not None:
        y = apply("mul", y, weight)
    if bias is not None:
        y = apply("add", y, bias)
    return cast(y, like.tile.dtype)


def batch_norm(
    x: TileValue,
    running_mean: Any = None,
    running_var: Any = None,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    **options: Any,
) -> TileValue:
    """``F.batch_norm`` by given statistics, or in training by its own if none are to be updated."""
    wide = cast(x, compute_dtype(x.tile.dtype))
    if not training:
        average, variance = (_per_channel(wide, given) for given in (running_mean, running_var))
    elif running_mean is None and running_var is None:
        axes = tuple(axis for axis in range(x.tile.rank) if axis != 1)
        variance, average = var_mean(wide, axes, correction=0, keepdim=True)
    else:
        raise errors.UnsupportedTorchArgument(
            name="F.batch_norm", argument="training=True and running statistics"
        )
    scale = apply("rsqrt", apply("add", variance, options.get("eps", 1e-5)))
    centred = apply("mul", apply("sub", wide, average), scale)
    return _affine(centred, _per_channel(wide, weight), _per_channel(wide, bias), x)


def _per_channel(x: TileValue, values: Any) -> Any:
    """One value for each index of axis 1."""
    if values is None:
        return None
    return expand_dims(cast(values, x.tile.dtype), tuple(a for a in range(x.tile.rank) if a != 1))


def instance_norm(
    x: TileValue,
    running_mean: Any = None,
    running_var: Any = None,
    weight: Any = None,
    bias: Any = None,
    use_input_stats: bool = True,
    **options: Any,
) -> TileValue:
    """``F.instance_norm`` by the statistics of each channel of each sample."""
    if not use_input_stats:
        options.pop("momentum", None)
        return batch_norm(x, running_mean, running_var, weight, bias, False, **options)
    if running_mean is not None or running_var is not None:
        raise errors.UnsupportedTorchArgument(
            name="F.instance_norm", argument="running statistics to update"
        )
    wide = cast(x, compute_dtype(x.tile.dtype))
    centred = _normalized(wide, tuple(range(2, x.tile.rank)), options.get("eps", 1e-5))
    return _affine(centred, _per_channel(wide, weight), _per_channel(wide, bias), x)


def group_norm(
    x: TileValue, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> TileValue:
    """``F.group_norm``: the channels (axis 1) in groups."""
    wide = cast(x, compute_dtype(x.tile.dtype))
    sizes = x.shape
    grouped = dispatch("reshape", (wide, (sizes[0], num_groups, -1, *sizes[2:])), {})
    centred = _normalized(grouped, tuple(range(2, grouped.tile.rank)), eps)
    flat = dispatch("reshape", (centred, sizes), {})
    return _affine(flat, _per_channel(wide, weight), _per_channel(wide, bias), x)


def _normalized(wide: TileValue, axes: tuple[int, ...], eps: float) -> TileValue:
    variance, average = var_mean(wide, axes, correction=0, keepdim=True)
    scale = apply("rsqrt", apply("add", variance, eps))
    return apply("mul", apply("sub", wide, average), scale)


NORMALIZATIONS: dict[str, Rule] = {
    "layer_norm": layer_norm, "rms_norm": rms_norm, "batch_norm": batch_norm,
    "instance_norm": instance_norm, "group_norm": group_norm,
}  # fmt: skip
