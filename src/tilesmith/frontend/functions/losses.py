"""Torch's loss functions: a term for each element, then its mean or sum."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import tilesmith.exc as errors
from tilesmith.dtypes import DType
from tilesmith.frontend.functions.elementwise import where
from tilesmith.frontend.functions.norms import pairwise_distance
from tilesmith.frontend.functions.promotion import common_dtype, compute_dtype, float_dtype, widened
from tilesmith.frontend.functions.reduction import mean, sum_
from tilesmith.frontend.functions.special_functions import times_log
from tilesmith.frontend.tracing.emission import Rule, apply, as_tile, cast
from tilesmith.frontend.tracing.values import TileValue

Terms = Callable[..., TileValue]
_LOG_FLOOR = -100.0
"""Where eager cuts off the logarithms of ``binary_cross_entropy``."""


def loss(name: str, terms: Terms, dtype_of: Callable[..., DType] = common_dtype) -> Rule:
    """A loss of the terms of an input and a target."""

    def rule(input: TileValue, target: Any, *args: Any, **options: Any) -> TileValue:
        reduction, options = _reduction(name, options)
        dtype = dtype_of(input, target)
        wide = compute_dtype(dtype)
        weight = options.pop("weight", None)
        result = terms(as_tile(input, wide), as_tile(target, wide), *args, **options)
        if weight is not None:
            result = apply("mul", result, as_tile(weight, result.tile.dtype))
        return cast(_reduced(name, result, reduction), dtype)

    return rule


def _reduction(name: str, options: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The kind of reduction and the options that are left."""
    rest = {key: value for key, value in options.items() if key not in ("reduction", "inplace")}
    for legacy in ("size_average", "reduce"):
        if rest.pop(legacy, None) is not None:
            raise errors.UnsupportedTorchArgument(
                name=f"F.{name}", argument=f"{legacy}= (use reduction=)"
            )
    return options.get("reduction", "mean"), rest


def _reduced(name: str, terms: TileValue, reduction: str) -> TileValue:
    if reduction == "none":
        return terms
    if reduction == "mean":
        return mean(terms)
    if reduction == "sum":
        return sum_(terms)
    if reduction == "batchmean" and name == "kl_div":
        return apply("div", sum_(terms), float(terms.shape[0]))
    raise errors.UnsupportedTorchArgument(name=f"F.{name}", argument=f"reduction={reduction!r}")


def _square(x: TileValue) -> TileValue:
    return apply("mul", x, x)


def _squared_error(x: TileValue, target: TileValue) -> TileValue:
    return _square(apply("sub", x, target))


def _absolute_error(x: TileValue, target: TileValue) -> TileValue:
    return apply("abs", apply("sub", x, target))


def _smooth_l1(x: TileValue, target: TileValue, beta: float = 1.0) -> TileValue:
    if beta == 0:
        return _absolute_error(x, target)
    error = _absolute_error(x, target)
    curve = apply("div", apply("mul", _square(error), 0.5), beta)
    return where(apply("lt", error, beta), curve, apply("sub", error, 0.5 * beta))


def _huber(x: TileValue, target: TileValue, delta: float = 1.0) -> TileValue:
    error = _absolute_error(x, target)
    line = apply("mul", apply("sub", error, 0.5 * delta), delta)
    return where(apply("le", error, delta), apply("mul", _square(error), 0.5), line)


def _kl(x: TileValue, target: TileValue, log_target: bool = False) -> TileValue:
    if log_target:
        return apply("mul", apply("exp", target), apply("sub", target, x))
    return apply("sub", times_log("log")(target, target), apply("mul", target, x))


def _cross_entropy(x: TileValue, target: TileValue) -> TileValue:
    """``-(t log x + (1 - t) log(1 - x))`` with the logarithms cut off."""
    log = apply("maximum", apply("log", x), _LOG_FLOOR)
    log_rest = apply("maximum", apply("log1p", apply("neg", x)), _LOG_FLOOR)
    negative = apply("mul", apply("sub", target, 1.0), log_rest)
    return apply("sub", negative, apply("mul", target, log))


def _cross_entropy_of_logits(
    x: TileValue, target: TileValue, pos_weight: TileValue | None = None
) -> TileValue:
    """The same of ``sigmoid(x)``, without overflow."""
    tail = apply("log1p", apply("exp", apply("neg", apply("abs", x))))
    softplus = apply("add", tail, apply("maximum", apply("neg", x), 0.0))
    rest = apply("mul", apply("sub", 1.0, target), x)
    if pos_weight is None:
        return apply("add", rest, softplus)
    wide = as_tile(pos_weight, x.tile.dtype)
    factor = apply("add", apply("mul", apply("sub", wide, 1.0), target), 1.0)
    return apply("add", rest, apply("mul", factor, softplus))


def _soft_margin(x: TileValue, target: TileValue) -> TileValue:
    return apply("log1p", apply("exp", apply("neg", apply("mul", x, target))))


def _hinge_embedding(x: TileValue, target: TileValue, margin: float = 1.0) -> TileValue:
    far = apply("maximum", apply("sub", margin, x), 0.0)
    return apply(
        "add", where(apply("ne", target, 1.0), far, 0.0), where(apply("ne", target, -1.0), x, 0.0)
    )


def _poisson(
    x: TileValue,
    target: TileValue,
    log_input: bool = True,
    full: bool = False,
    eps: float = 1e-8,
) -> TileValue:
    if log_input:
        result = apply("sub", apply("exp", x), apply("mul", target, x))
    else:
        result = apply("sub", x, apply("mul", target, apply("log", apply("add", x, eps))))
    if not full:
        return result
    stirling = apply("sub", apply("mul", target, apply("log", target)), target)
    stirling = apply(
        "add", stirling, apply("mul", apply("log", apply("mul", target, 2 * math.pi)), 0.5)
    )
    return apply("add", result, where(apply("le", target, 1.0), 0.0, stirling))


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
        raise errors.UnsupportedTorchArgument(
            name="F.gaussian_nll_loss", argument="a variance of lower rank"
        )
    variance = apply("maximum", variance, eps)
    scaled = apply("div", _squared_error(x, wide_target), variance)
    terms = apply("mul", apply("add", apply("log", variance), scaled), 0.5)
    if full:
        terms = apply("add", terms, 0.5 * math.log(2 * math.pi))
    return cast(_reduced("gaussian_nll_loss", terms, reduction), dtype)


def margin_ranking_loss(
    input1: TileValue, input2: TileValue, target: TileValue, margin: float = 0.0, **options: Any
) -> TileValue:
    """``max(0, -target * (input1 - input2) + margin)``."""
    reduction, _ = _reduction("margin_ranking_loss", options)
    dtype, (x, y, sign) = widened(input1, input2, target)
    signed = apply("mul", apply("neg", sign), apply("sub", x, y))
    terms = apply("maximum", apply("add", signed, margin), 0.0)
    return cast(_reduced("margin_ranking_loss", terms, reduction), dtype)


def cosine_embedding_loss(
    input1: TileValue, input2: TileValue, target: TileValue, margin: float = 0.0, **options: Any
) -> TileValue:
    """Distance of directions for targets of 1, nearness beyond a margin for -1."""
    reduction, _ = _reduction("cosine_embedding_loss", options)
    dtype, (x, y) = widened(input1, input2)
    lengths = [apply("add", sum_(_square(tile), -1), 1e-12) for tile in (x, y)]
    nearness = apply("div", sum_(apply("mul", x, y), -1), apply("sqrt", apply("mul", *lengths)))
    apart = apply("maximum", apply("sub", nearness, margin), 0.0)
    terms = where(
        apply("eq", target, 1),
        apply("sub", 1.0, nearness),
        where(apply("eq", target, -1), apart, 0.0),
    )
    return cast(_reduced("cosine_embedding_loss", terms, reduction), dtype)


def triplet_margin_loss(
    anchor: TileValue,
    positive: TileValue,
    negative: TileValue,
    margin: float = 1.0,
    p: float = 2.0,
    **options: Any,
) -> TileValue:
    """Nearer to the positive than to the negative, by a margin."""
    eps, swap = options.pop("eps", 1e-6), options.pop("swap", False)
    reduction, _ = _reduction("triplet_margin_loss", options)
    dtype, (a, b, c) = widened(anchor, positive, negative)
    near, far = pairwise_distance(a, b, p, eps), pairwise_distance(a, c, p, eps)
    if swap:
        far = apply("minimum", far, pairwise_distance(b, c, p, eps))
    terms = apply("maximum", apply("add", apply("sub", near, far), margin), 0.0)
    return cast(_reduced("triplet_margin_loss", terms, reduction), dtype)


_TERMS: dict[str, Terms] = {
    "mse_loss": _squared_error, "l1_loss": _absolute_error, "smooth_l1_loss": _smooth_l1,
    "huber_loss": _huber, "kl_div": _kl, "binary_cross_entropy": _cross_entropy,
    "binary_cross_entropy_with_logits": _cross_entropy_of_logits,
    "soft_margin_loss": _soft_margin, "hinge_embedding_loss": _hinge_embedding,
}  # fmt: skip
LOSSES: dict[str, Rule] = {
    **{name: loss(name, terms) for name, terms in _TERMS.items()},
    "poisson_nll_loss": loss("poisson_nll_loss", _poisson, float_dtype),
    "gaussian_nll_loss": gaussian_nll_loss, "margin_ranking_loss": margin_ranking_loss,
    "cosine_embedding_loss": cosine_embedding_loss, "triplet_margin_loss": triplet_margin_loss,
}  # fmt: skip
