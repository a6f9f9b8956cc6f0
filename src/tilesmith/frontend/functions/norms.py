"""Lengths and distances of vectors and matrices, normalisation by them or by statistics, losses.

Layer, RMS, group, instance and batch norm scale and shift afterwards. A loss is a term for each
element, then its mean or sum.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tilesmith.dtypes import DType
from tilesmith.frontend.functions import promotion
from tilesmith.frontend.functions.special_functions import times_log
from tilesmith.frontend.refusals import unsupported_argument
from tilesmith.frontend.tracing.emission import Rule, apply, cast, expand_dims, select, strong
from tilesmith.frontend.tracing.values import TileValue
from tilesmith.interpreter.torch_dtypes import from_torch

INFINITY = float("inf")


def _of_dtype(function: promotion.Composition) -> Rule:
    """The norm in the type asked for, fp32 on the way for half types."""
    rule = promotion.in_wide_type(function)

    def typed(x: TileValue, *args: Any, dtype: Any = None, **kwargs: Any) -> TileValue:
        return rule(x if dtype is None else cast(x, from_torch(dtype)), *args, **kwargs)

    return typed


def _length(x: TileValue, ord: Any = 2, dim: Any = None, keepdim: bool = False) -> TileValue:
    """``torch.linalg.vector_norm`` of any order."""
    if ord == 0:
        return cast(x.bool(), x.tile.dtype).sum(dim, keepdim)
    if ord == 2:
        return (x * x).sum(dim, keepdim).sqrt()
    magnitude = abs(x)
    if ord == 1:
        return magnitude.sum(dim, keepdim)
    if abs(ord) == INFINITY:
        return magnitude.amax(dim, keepdim) if ord > 0 else magnitude.amin(dim, keepdim)
    total = apply("pow", magnitude, float(ord)).sum(dim, keepdim)
    return apply("pow", total, 1 / ord)


def _matrix_length(
    x: TileValue, ord: Any = "fro", dim: Any = (-2, -1), keepdim: bool = False
) -> TileValue:
    """``torch.linalg.matrix_norm`` but for the norms of singular values."""
    if ord == "fro":
        return _length(x, 2, dim, keepdim)
    if ord not in (1, -1, INFINITY, -INFINITY):
        raise unsupported_argument("torch.linalg.matrix_norm", f"ord={ord!r}")
    summed, compared = (axis % x.tile.rank for axis in (dim if abs(ord) == 1 else dim[::-1]))
    sums, axes = abs(x).sum(summed, keepdim=True), (summed, compared)
    return sums.amax(axes, keepdim) if ord > 0 else sums.amin(axes, keepdim)


def _any_length(x: TileValue, ord: Any = None, dim: Any = None, keepdim: bool = False) -> TileValue:
    """``torch.linalg.norm``: of vectors or matrices, as the arguments say."""
    axes = dim if isinstance(dim, (tuple, list)) else None if dim is None else (dim,)
    if ord is None:
        return _length(x, 2, axes, keepdim)
    if isinstance(ord, str) or (len(axes) if axes is not None else x.tile.rank) == 2:
        return _matrix_length(x, ord, axes or (0, 1), keepdim)
    return _length(x, ord, axes, keepdim)


def _norm(x: TileValue, p: Any = 2, dim: Any = None, keepdim: bool = False) -> TileValue:
    """``torch.norm`` but for the nuclear one."""
    if p == "nuc":
        raise unsupported_argument("torch.norm", "p='nuc'")
    return _length(x, 2 if p in ("fro", None) else p, dim, keepdim)


def normalize(x: TileValue, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> TileValue:
    """``F.normalize``: divided by the norm, which counts as ``eps`` at least."""
    return x / apply("maximum", _norm(x, p, dim, keepdim=True), eps)


def cosine_similarity(x: TileValue, y: TileValue, dim: int = 1, eps: float = 1e-8) -> TileValue:
    """The cosine of the angle between two vectors."""
    left = apply("maximum", _length(x, 2, dim, True), eps)
    right = apply("maximum", _length(y, 2, dim, True), eps)
    return (x / left * (y / right)).sum(dim)


def pairwise_distance(
    x: TileValue, y: TileValue, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> TileValue:
    """The length of the difference along the last axis."""
    return _length(x - y + eps, p, -1, keepdim)


def layer_norm(
    x: TileValue, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> TileValue:
    """``F.layer_norm`` over the trailing axes."""
    axes = tuple(range(x.tile.rank - len(normalized_shape), x.tile.rank))
    return _affine(_normalized(x, axes, eps), weight, bias)


def rms_norm(
    x: TileValue, normalized_shape: Any, weight: Any = None, eps: float | None = None
) -> TileValue:
    """``F.rms_norm`` over the trailing axes."""
    axes = tuple(range(x.tile.rank - len(normalized_shape), x.tile.rank))
    # Torch takes the machine epsilon of the type that it computes in.
    epsilon = 2.0 ** (1 - x.tile.dtype.precision) if eps is None else eps
    mean_square = (x * x).mean(axes, keepdim=True)
    return _affine(x * (mean_square + epsilon).rsqrt(), weight, None)


def _affine(y: TileValue, weight: Any, bias: Any) -> TileValue:
    y = y if weight is None else apply("mul", y, weight)
    return y if bias is None else apply("add", y, bias)


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
    if not training:
        average, variance = _per_channel(x, running_mean), _per_channel(x, running_var)
    elif running_mean is None and running_var is None:
        axes = tuple(axis for axis in range(x.tile.rank) if axis != 1)
        variance, average = x.var_mean(axes, correction=0, keepdim=True)
    else:
        raise unsupported_argument("F.batch_norm", "training=True and running statistics")
    scale = (variance + options.get("eps", 1e-5)).rsqrt()
    return _affine((x - average) * scale, _per_channel(x, weight), _per_channel(x, bias))


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
        raise unsupported_argument("F.instance_norm", "running statistics to update")
    centred = _normalized(x, tuple(range(2, x.tile.rank)), options.get("eps", 1e-5))
    return _affine(centred, _per_channel(x, weight), _per_channel(x, bias))


def group_norm(
    x: TileValue, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> TileValue:
    """``F.group_norm``: the channels (axis 1) in groups."""
    sizes = x.shape
    grouped = x.reshape(sizes[0], num_groups, -1, *sizes[2:])
    flat = _normalized(grouped, tuple(range(2, grouped.tile.rank)), eps).reshape(sizes)
    return _affine(flat, _per_channel(x, weight), _per_channel(x, bias))


def _normalized(x: TileValue, axes: tuple[int, ...], eps: float) -> Any:
    variance, average = x.var_mean(axes, correction=0, keepdim=True)
    scale = (variance + eps).rsqrt()
    return (x - average) * scale


NORMS: dict[str, Rule] = {
    "norm": _of_dtype(_norm), "normalize": promotion.in_wide_type(normalize),
    "linalg_vector_norm": _of_dtype(_length), "linalg_norm": _of_dtype(_any_length),
    "linalg_matrix_norm": _of_dtype(_matrix_length),
    "cosine_similarity": promotion.in_float_type(cosine_similarity, 2),
    "pairwise_distance": promotion.in_float_type(pairwise_distance, 2),
    "dist": promotion.in_float_type(lambda x, y, p=2: _length(x - y, p), 2),
    "layer_norm": promotion.in_wide_type(layer_norm), "rms_norm": promotion.in_wide_type(rms_norm),
    "batch_norm": promotion.in_wide_type(batch_norm),
    "instance_norm": promotion.in_wide_type(instance_norm),
    "group_norm": promotion.in_wide_type(group_norm),
}  # fmt: skip

_LOG_FLOOR = -100.0
"""Where eager cuts off the logarithms of ``binary_cross_entropy``."""


def loss(
    name: str,
    terms: promotion.Composition,
    dtype_of: Callable[..., DType] = promotion.common_dtype,
    num_operands: int = 2,
) -> Rule:
    """A loss of the terms of an input and a target, or of several inputs."""

    def rule(*args: Any, **options: Any) -> TileValue:
        reduction, options = _reduction(name, options)
        dtype = dtype_of(*args[:num_operands])
        wide = [strong(operand, dtype.computed) for operand in args[:num_operands]]
        weight = options.pop("weight", None)
        result = terms(*wide, *args[num_operands:], **options)
        if weight is not None:
            result = result * strong(weight, result.tile.dtype)
        return cast(_reduced(name, result, reduction), dtype)

    return rule


def _reduction(name: str, options: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The kind of reduction and the options that are left."""
    rest = {key: value for key, value in options.items() if key not in ("reduction", "inplace")}
    for legacy in ("size_average", "reduce"):
        if rest.pop(legacy, None) is not None:
            raise unsupported_argument(f"F.{name}", f"{legacy}= (use reduction=)")
    return options.get("reduction", "mean"), rest


def _reduced(name: str, terms: TileValue, reduction: str) -> TileValue:
    if reduction == "none":
        return terms
    if reduction == "mean":
        return terms.mean()
    if reduction == "sum":
        return terms.sum()
    if reduction == "batchmean" and name == "kl_div":
        return terms.sum() / float(terms.shape[0])
    raise unsupported_argument(f"F.{name}", f"reduction={reduction!r}")


def _squared_error(x: TileValue, target: TileValue) -> TileValue:
    error = x - target
    return error * error


def _smooth_l1(x: TileValue, target: TileValue, beta: float = 1.0) -> TileValue:
    error = abs(x - target)
    if beta == 0:
        return error
    curve = error * error * 0.5 / beta
    return select(error < beta, curve, error - 0.5 * beta)


def _huber(x: TileValue, target: TileValue, delta: float = 1.0) -> TileValue:
    error = abs(x - target)
    line = (error - 0.5 * delta) * delta
    return select(error <= delta, error * error * 0.5, line)


def _kl(x: TileValue, target: TileValue, log_target: bool = False) -> TileValue:
    if log_target:
        return target.exp() * (target - x)
    return times_log(target, target) - target * x


def _cross_entropy(x: TileValue, target: TileValue) -> TileValue:
    """``-(t log x + (1 - t) log(1 - x))`` with the logarithms cut off."""
    log = apply("maximum", x.log(), _LOG_FLOOR)
    log_rest = apply("maximum", (-x).log1p(), _LOG_FLOOR)
    return (target - 1.0) * log_rest - target * log


def _cross_entropy_of_logits(
    x: TileValue, target: TileValue, pos_weight: TileValue | None = None
) -> TileValue:
    """The same of ``sigmoid(x)``, without overflow."""
    softplus = (-abs(x)).exp().log1p() + apply("maximum", -x, 0.0)
    rest = (1.0 - target) * x
    if pos_weight is None:
        return rest + softplus
    factor = (strong(pos_weight, x.tile.dtype) - 1.0) * target + 1.0
    return rest + factor * softplus


def _hinge_embedding(x: TileValue, target: TileValue, margin: float = 1.0) -> TileValue:
    far = apply("maximum", margin - x, 0.0)
    return select(target != 1.0, far, 0.0) + select(target != -1.0, x, 0.0)


def _poisson(
    x: TileValue, target: TileValue, log_input: bool = True, full: bool = False, eps: float = 1e-8
) -> TileValue:
    result = x.exp() - target * x if log_input else x - target * (x + eps).log()
    if not full:
        return result
    stirling = target * target.log() - target
    stirling = stirling + (target * (2 * math.pi)).log() * 0.5
    return result + select(target <= 1.0, 0.0, stirling)


def gaussian_nll_loss(
    input: TileValue,
    target: TileValue,
    var: Any,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> TileValue:
    """The likelihood of a target under a normal distribution, as ``F.gaussian_nll_loss`` has it."""
    dtype, (x, wide_target, variance) = promotion.widened(input, target, var)
    if variance.tile.rank == x.tile.rank - 1 and variance.tile.shape == x.tile.shape[:-1]:
        raise unsupported_argument("F.gaussian_nll_loss", "a variance of lower rank")
    variance = apply("maximum", variance, eps)
    scaled = _squared_error(x, wide_target) / variance
    terms = (variance.log() + scaled) * 0.5
    if full:
        terms = terms + 0.5 * math.log(2 * math.pi)
    return cast(_reduced("gaussian_nll_loss", terms, reduction), dtype)


def _margin_ranking(x: TileValue, y: TileValue, sign: TileValue, margin: float = 0.0) -> TileValue:
    """``max(0, -target * (input1 - input2) + margin)``."""
    return apply("maximum", -sign * (x - y) + margin, 0.0)


def cosine_embedding_loss(
    input1: TileValue, input2: TileValue, target: TileValue, margin: float = 0.0, **options: Any
) -> TileValue:
    """Distance of directions for targets of 1, nearness beyond a margin for -1."""
    reduction, _ = _reduction("cosine_embedding_loss", options)
    dtype, (x, y) = promotion.widened(input1, input2)
    lengths = [(tile * tile).sum(-1) + 1e-12 for tile in (x, y)]
    nearness = (x * y).sum(-1) / (lengths[0] * lengths[1]).sqrt()
    apart = apply("maximum", nearness - margin, 0.0)
    terms = select(target == 1, 1.0 - nearness, select(target == -1, apart, 0.0))
    return cast(_reduced("cosine_embedding_loss", terms, reduction), dtype)


def _triplet_margin(
    a: TileValue, b: TileValue, c: TileValue, margin: float = 1.0, p: float = 2.0, **options: Any
) -> TileValue:
    """Nearer to the positive than to the negative, by a margin."""
    eps, swap = options.get("eps", 1e-6), options.get("swap", False)
    near, far = a.pairwise_distance(b, p, eps), a.pairwise_distance(c, p, eps)
    if swap:
        far = apply("minimum", far, b.pairwise_distance(c, p, eps))
    return apply("maximum", near - far + margin, 0.0)


_TERMS: dict[str, promotion.Composition] = {
    "mse_loss": _squared_error, "l1_loss": lambda x, target: abs(x - target),
    "smooth_l1_loss": _smooth_l1,
    "huber_loss": _huber, "kl_div": _kl, "binary_cross_entropy": _cross_entropy,
    "binary_cross_entropy_with_logits": _cross_entropy_of_logits,
    "soft_margin_loss": lambda x, target: (-(x * target)).exp().log1p(),
    "hinge_embedding_loss": _hinge_embedding,
}  # fmt: skip
LOSSES: dict[str, Rule] = {
    **{name: loss(name, terms) for name, terms in _TERMS.items()},
    "poisson_nll_loss": loss("poisson_nll_loss", _poisson, promotion.float_dtype),
    "margin_ranking_loss": loss("margin_ranking_loss", _margin_ranking, promotion.float_dtype, 3),
    "triplet_margin_loss": loss("triplet_margin_loss", _triplet_margin, promotion.float_dtype, 3),
    "gaussian_nll_loss": gaussian_nll_loss, "cosine_embedding_loss": cosine_embedding_loss,
}  # fmt: skip
