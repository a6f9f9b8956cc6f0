"""Torch's loss functions: a term for each element, then its mean or sum."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tilesmith.dtypes import DType
from tilesmith.frontend.functions.promotion import common_dtype, compute_dtype, float_dtype, widened
from tilesmith.frontend.functions.special_functions import times_log
from tilesmith.frontend.refusals import unsupported_argument
from tilesmith.frontend.tracing.emission import Rule, apply, cast, select, strong
from tilesmith.frontend.tracing.values import TileValue

Terms = Callable[..., TileValue]
_LOG_FLOOR = -100.0
"""Where eager cuts off the logarithms of ``binary_cross_entropy``."""


def loss(
    name: str, terms: Terms, dtype_of: Callable[..., DType] = common_dtype, num_operands: int = 2
) -> Rule:
    """A loss of the terms of an input and a target, or of several inputs."""

    def rule(*args: Any, **options: Any) -> TileValue:
        reduction, options = _reduction(name, options)
        dtype = dtype_of(*args[:num_operands])
        wide = [strong(operand, compute_dtype(dtype)) for operand in args[:num_operands]]
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


def _absolute_error(x: TileValue, target: TileValue) -> TileValue:
    return abs(x - target)


def _smooth_l1(x: TileValue, target: TileValue, beta: float = 1.0) -> TileValue:
    error = _absolute_error(x, target)
    if beta == 0:
        return error
    curve = error * error * 0.5 / beta
    return select(error < beta, curve, error - 0.5 * beta)


def _huber(x: TileValue, target: TileValue, delta: float = 1.0) -> TileValue:
    error = _absolute_error(x, target)
    line = (error - 0.5 * delta) * delta
    return select(error <= delta, error * error * 0.5, line)


def _kl(x: TileValue, target: TileValue, log_target: bool = False) -> TileValue:
    if log_target:
        return target.exp() * (target - x)
    return times_log("log")(target, target) - target * x


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
    dtype, (x, wide_target, variance) = widened(input, target, var)
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
    dtype, (x, y) = widened(input1, input2)
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


_TERMS: dict[str, Terms] = {
    "mse_loss": _squared_error, "l1_loss": _absolute_error, "smooth_l1_loss": _smooth_l1,
    "huber_loss": _huber, "kl_div": _kl, "binary_cross_entropy": _cross_entropy,
    "binary_cross_entropy_with_logits": _cross_entropy_of_logits,
    "soft_margin_loss": lambda x, target: (-(x * target)).exp().log1p(),
    "hinge_embedding_loss": _hinge_embedding,
}  # fmt: skip
LOSSES: dict[str, Rule] = {
    **{name: loss(name, terms) for name, terms in _TERMS.items()},
    "poisson_nll_loss": loss("poisson_nll_loss", _poisson, float_dtype),
    "margin_ranking_loss": loss("margin_ranking_loss", _margin_ranking, float_dtype, 3),
    "triplet_margin_loss": loss("triplet_margin_loss", _triplet_margin, float_dtype, 3),
    "gaussian_nll_loss": gaussian_nll_loss, "cosine_embedding_loss": cosine_embedding_loss,
}  # fmt: skip
