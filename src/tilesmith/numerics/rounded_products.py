"""The norm of the error of products whose left factor is rounded to a narrow type first.

Products of matrix units take narrow factors, so attention rounds its weights, or their gradients,
before it multiplies them; the result is rounded once more. A norm of many such errors is near its
mean. One of few errors is not, and a limit for many is too tight for them.
"""

from __future__ import annotations

import math

import torch

from tilesmith.numerics.tolerance import unit_roundoff

SIGMAS = 6
"""As many as a Budget has for sums."""


def allowed_norm(left: torch.Tensor, right: torch.Tensor, dtype: torch.dtype) -> float:
    """The largest norm that the error of ``left @ right`` may have; both are float64.

    ``left`` is rounded to ``dtype`` before the product, and so is the result. Every rounded number
    is a term ``t``: ``left[r, n] * right[n, :]``, or an element of the result alone. It is off by
    ``d t`` with ``|d| <= u``, the roundoff of the type, and the ``d`` are independent of each other
    with mean 0. Where the significand is 1, ``d`` lies anywhere between ``-u`` and ``u``; elsewhere
    it is smaller. So with ``A`` the sum of all ``|t|**2`` and ``G`` all products of two terms,

    - the mean of the square of the norm is at most ``A u**2 / 3``;
    - its variance is at most ``2 / 9 u**4 |G|**2``: ``2 / 9 u**4`` for each product of two
      different terms, and at most ``u**4 / 5`` for each term with itself;
    - the norm is never more than ``u`` times that of the sums of all ``|t|``.

    Allowed is the mean and six sigma, or what is never exceeded where that is less. With N terms
    of one size at right angles this is ``u sqrt(2 N) sqrt(1 / 3 + sqrt(8 / N))`` or so.
    Terms below the smallest normal number are as far off as that one.
    """
    rounded = left.abs()
    rounded = rounded.clamp(min=torch.finfo(dtype).smallest_normal).masked_fill(left == 0, 0.0)
    result, u = left @ right, unit_roundoff(dtype)
    lengths = right.square().sum(-1)
    squares, results = rounded.square(), result.square()
    mean = ((squares @ lengths[..., None]).sum() + results.sum()) / 3
    angles = (right @ right.mT).square()
    within = ((squares @ angles) * squares).sum()
    between = (squares * (results @ right.square().mT)).sum()
    products = within + 2 * between + results.square().sum()
    likely = mean + SIGMAS * math.sqrt(2) / 3 * products.sqrt()
    largest = (rounded @ lengths.sqrt()[..., None]).norm() + result.norm()
    return u * min(math.sqrt(float(likely)), float(largest))
