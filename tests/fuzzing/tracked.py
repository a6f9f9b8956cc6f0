"""Values with bounds of their errors: whole tensors in fp64, and how far a kernel may be off.

Running error analysis. A bound of 0 means that there is one right result, since every value on the
way is exactly representable; infinity means that nothing can be said (a comparison of numbers that
may be equal, an overflow). Integers and booleans are right or unknown.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from tilesmith.numerics.tolerance import (
    ELEMENTWISE_STEPS,
    accumulation_dtype,
    smallest_spacing,
    unit_roundoff,
)

QUANTA = (1.0, 2.0**-4, 2.0**-8)
"""Multiples of one of these are added exactly as long as their sum is small enough."""


@dataclass(frozen=True)
class Tracked:
    """What a tensor should hold.

    Attributes:
        value: fp64 for float types, the type itself for others.
        error: largest absolute difference allowed, fp64; infinity: unknown.
        dtype: the type a kernel holds it in.
    """

    value: torch.Tensor
    error: torch.Tensor
    dtype: torch.dtype

    def mapped(self, function: Callable[[torch.Tensor], torch.Tensor]) -> Tracked:
        """The same rearrangement of values and bounds."""
        return Tracked(function(self.value), function(self.error), self.dtype)


def exactly(values: torch.Tensor) -> Tracked:
    """Given numbers: inputs and constants."""
    wide = values.double() if values.dtype.is_floating_point else values
    return Tracked(wide, torch.zeros(values.shape, dtype=torch.float64), values.dtype)


def known(values: torch.Tensor, error: torch.Tensor, dtype: torch.dtype | None = None) -> Tracked:
    """Integers or booleans: right, or unknown where ``error`` is not zero."""
    unknown = torch.where(error == 0, 0.0, math.inf).double()
    return Tracked(values, unknown.expand(values.shape), dtype or values.dtype)


def rounded(
    value: torch.Tensor, error: torch.Tensor, dtype: torch.dtype, *, is_approximate: bool = False
) -> Tracked:
    """The value rounded once to a float type; approximate functions have a few steps more."""
    value, error = torch.broadcast_tensors(value, error)
    is_exact = (value.to(dtype).double() == value) & (error == 0) & (not is_approximate)
    steps = unit_roundoff(dtype)
    if is_approximate:
        steps += ELEMENTWISE_STEPS * unit_roundoff(accumulation_dtype(dtype))
    if dtype == torch.float64:
        steps *= 2  # the value here is rounded as well
    floor = smallest_spacing(dtype) + torch.finfo(accumulation_dtype(dtype)).smallest_normal
    bound = error + steps * (value.abs() + error) + floor
    bound = torch.where(is_exact, 0.0, bound)
    is_finite = value.abs() + bound < torch.finfo(dtype).max * 0.99
    is_special = is_known_special(value, error, dtype)
    bound = torch.where(is_special, 0.0, torch.where(is_finite, bound, math.inf))
    return Tracked(torch.where(is_finite | is_special, value, 0.0), bound, dtype)


def is_known_special(value: torch.Tensor, error: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Where a value is certainly NaN or infinite, and the type has that."""
    held = value.to(dtype).double()
    is_held = (held == value) | (held.isnan() & value.isnan())
    return ~value.isfinite() & (error == 0) & is_held


def cast(x: Tracked, dtype: torch.dtype) -> Tracked:
    """Convert to another type."""
    if x.dtype == dtype:
        return x
    if x.dtype.is_floating_point:
        return _cast_float(x, dtype)
    if not dtype.is_floating_point:
        return known(x.value.to(dtype), x.error)
    wide = x.value.double()
    is_lost = wide.abs() > 2.0**52
    return rounded(wide, x.error + torch.where(is_lost, wide.abs() * 2.0**-52, 0.0), dtype)


def _cast_float(x: Tracked, dtype: torch.dtype) -> Tracked:
    if dtype.is_floating_point:
        if x.dtype.itemsize == 1 or torch.promote_types(x.dtype, dtype) == dtype:
            # Wider types have all numbers of eight bits.
            return Tracked(x.value, x.error, dtype)
        return rounded(x.value, x.error, dtype)
    error = x.error
    if dtype == torch.bool:
        unsure = (error > 0) & (x.value.abs() <= error)
        return known(x.value != 0, unsure.double())
    limits = torch.iinfo(dtype)
    unsure = torch.trunc(x.value - error) != torch.trunc(x.value + error)
    unsure |= (x.value + error >= min(limits.max, 2.0**52)) | error.isinf() | ~x.value.isfinite()
    unsure |= x.value - error <= max(limits.min - 0.5, -(2.0**52))
    return known(torch.where(unsure, 0.0, x.value).to(dtype), unsure.double())


def is_quantised(quantum: float, *operands: Tracked) -> bool:
    """Whether all numbers are exact multiples of a quantum."""
    return all(
        bool((x.error == 0).all()) and bool((x.value / quantum).frac().eq(0).all())
        for x in operands
    )


def exact_below(*operands: Tracked, unit: float) -> float:
    """Sums of the operands' elements (or of products of two) below this are exact in any order."""
    limits = [q / unit for q in QUANTA if is_quantised(q, *operands)]
    return max(limits, default=0.0)


def sum_bound(x: Tracked, dim: int, partial: torch.dtype, start: Tracked | None = None) -> Tracked:
    """``start`` and all elements along ``dim`` added up in any order in the type ``partial``."""
    total, error, size = x.value.sum(dim), x.error.sum(dim), x.value.abs().sum(dim)
    operands = (x,) if start is None else (x, start)
    if start is not None:
        total, error, size = total + start.value, error + start.error, size + start.value.abs()
    unit = unit_roundoff(partial)
    bound = error + (x.value.size(dim) + 2) * unit * (size + error)
    is_exact = size < exact_below(*operands, unit=unit)
    finite = x.value.nan_to_num(0.0, 0.0, 0.0).abs().sum(dim) + error
    if start is not None:
        finite = finite + start.value.nan_to_num(0.0, 0.0, 0.0).abs()
    # Nothing that is added to NaN changes it; infinities stay unless finite parts overflow.
    is_special = ~total.isfinite() & (finite < torch.finfo(partial).max / 2)
    return Tracked(total, torch.where(is_exact | is_special, 0.0, bound), partial)
