"""Normalisation over axes, with scale and shift: layer, RMS, group, instance and batch norm."""

from __future__ import annotations

from typing import Any

from tilesmith.diagnostics import errors
from tilesmith.frontend.composition import Rule
from tilesmith.frontend.elementwise import multiply
from tilesmith.frontend.emission import apply, cast, expand_dims
from tilesmith.frontend.promotion import compute_dtype
from tilesmith.frontend.reduction import mean, var_mean
from tilesmith.frontend.tracer import locate
from tilesmith.frontend.values import TileValue, dispatch


def layer_norm(
    x: TileValue, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> TileValue:
    """``F.layer_norm`` over the trailing axes."""
    axes = tuple(range(x.tile.rank - len(normalized_shape), x.tile.rank))
    wide = cast(x, compute_dtype(x.tile.dtype))
    variance, average = var_mean(wide, axes, correction=0, keepdim=True)
    scale = apply("rsqrt", apply("add", variance, eps))
    return _affine(apply("mul", apply("sub", wide, average), scale), weight, bias, x)


def rms_norm(
    x: TileValue, normalized_shape: Any, weight: Any = None, eps: float | None = None
) -> TileValue:
    """``F.rms_norm`` over the trailing axes."""
    axes = tuple(range(x.tile.rank - len(normalized_shape), x.tile.rank))
    wide = cast(x, compute_dtype(x.tile.dtype))
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
            name="F.batch_norm", argument="training=True and running statistics", loc=locate()
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
            name="F.instance_norm", argument="running statistics to update", loc=locate()
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
