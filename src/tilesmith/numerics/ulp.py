"""Units in the last place: spacing of a float type around a value, and distances counted in it.

Values go in as tensors of any float type, spacings come out as float64, which holds them exactly.
"""

from __future__ import annotations

import math

import torch

_DOUBLE_BIAS = 1023
_DOUBLE_FRACTION_BITS = 52
_ORDERED_VIEWS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def unit_roundoff(dtype: torch.dtype) -> float:
    """Largest relative error of rounding one value to ``dtype`` (half of its machine epsilon)."""
    return torch.finfo(dtype).eps / 2


def min_exponent(dtype: torch.dtype) -> int:
    """Exponent of the smallest normal number: 2**min_exponent."""
    return math.frexp(torch.finfo(dtype).smallest_normal)[1] - 1


def max_exponent(dtype: torch.dtype) -> int:
    """Exponent of the largest finite number, which lies in [2**e, 2**(e + 1))."""
    return math.frexp(torch.finfo(dtype).max)[1] - 1


def smallest_spacing(dtype: torch.dtype) -> float:
    """Distance between neighbouring subnormal numbers, the smallest spacing of the type."""
    finfo = torch.finfo(dtype)
    return math.ldexp(finfo.eps, min_exponent(dtype))


def ulp_at(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Spacing of ``dtype`` at each of ``values``; infinities and NaN count as the largest binade.

    Example:
        >>> ulp_at(torch.tensor([1.0, 3.0]), torch.bfloat16).tolist()
        [0.0078125, 0.015625]
    """
    highest = max_exponent(dtype)
    magnitude = values.to(torch.float64).abs()
    exponent = torch.frexp(magnitude).exponent - 1
    exponent = torch.where(torch.isfinite(magnitude), exponent, highest)
    # frexp(0) has exponent 0, which would make zero look like a number near one.
    exponent = torch.where(magnitude == 0, min_exponent(dtype), exponent)
    exponent = exponent.clamp(min_exponent(dtype), highest)
    return _power_of_two(exponent + _fraction_exponent(dtype))


def ulp_error(actual: torch.Tensor, reference: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Distance of ``actual`` from a float64 ``reference`` in ulps of ``dtype`` at the reference.

    A correctly rounded result is at most 0.5 away.
    """
    exact = reference.to(torch.float64)
    return (actual.to(torch.float64) - exact).abs() / ulp_at(exact, dtype)


def ulp_distance(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """How many representable values lie between two tensors of one float type, as int64.

    Both zeros are one value. The distance of a NaN from anything but a NaN is the largest int64.

    Example:
        >>> ulp_distance(torch.tensor([1.0]), torch.tensor([1.0 + 2**-23])).tolist()
        [1]
    """
    if left.dtype != right.dtype or not left.dtype.is_floating_point:
        raise TypeError(f"expected one float type, found {left.dtype} and {right.dtype}")
    distance = _saturating_distance(_ordered(left), _ordered(right))
    left_nan, right_nan = left.to(torch.float64).isnan(), right.to(torch.float64).isnan()
    distance = torch.where(left_nan != right_nan, torch.iinfo(torch.int64).max, distance)
    return torch.where(left_nan & right_nan, 0, distance)


def _fraction_exponent(dtype: torch.dtype) -> int:
    return math.frexp(torch.finfo(dtype).eps)[1] - 1


def _power_of_two(exponent: torch.Tensor) -> torch.Tensor:
    """2.0**exponent, exactly, subnormals included (vectorised pow may be an ulp off)."""
    wide = exponent.to(torch.int64)
    normal = (wide + _DOUBLE_BIAS).clamp(min=0) << _DOUBLE_FRACTION_BITS
    shift = (wide + _DOUBLE_BIAS - 1 + _DOUBLE_FRACTION_BITS).clamp(0, _DOUBLE_FRACTION_BITS)
    subnormal = torch.ones_like(wide) << shift
    bits = torch.where(wide > -_DOUBLE_BIAS, normal, subnormal)
    return bits.view(torch.float64)


def _ordered(values: torch.Tensor) -> torch.Tensor:
    """Map floats to int64 so that neighbours differ by one and order is kept."""
    view = _ORDERED_VIEWS[values.element_size()]
    bits = values.contiguous().view(view).to(torch.int64)
    # Negative floats are sign and magnitude: flip them so that more negative means smaller.
    lowest = torch.iinfo(view).min
    return torch.where(bits < 0, lowest - bits, bits)


def _saturating_distance(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """|left - right| in int64, kept at the maximum where it would not fit (float64 only)."""
    difference = (left - right).abs()
    # Same-signed operands cannot overflow; opposite signs overflow to a negative or wrong value.
    overflows = ((left < 0) != (right < 0)) & (
        left.to(torch.float64).abs() + right.to(torch.float64).abs() >= 2.0**63
    )
    return torch.where(overflows, torch.iinfo(torch.int64).max, difference)
