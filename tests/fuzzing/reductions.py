"""Reductions, scans and products of whole tensors, with bounds that hold for any order."""

from __future__ import annotations

import math

import torch

from tests.fuzzing.tracked import (
    QUANTA,
    Tracked,
    cast,
    exact_below,
    is_quantised,
    known,
    rounded,
    sum_bound,
)
from tilesmith.numerics.tolerance import accumulation_dtype, unit_roundoff


def reduced(kind: str, x: Tracked, dim: int, dtype: torch.dtype) -> Tracked:
    """One axis reduced."""
    if kind in ("argmax", "argmin"):
        return _place(kind, x, dim)
    if not dtype.is_floating_point:
        found = getattr(torch, kind)(x.value, dim)
        return known(found, x.error.amax(dim) if x.error.size(dim) else torch.zeros(found.shape))
    if kind in ("amax", "amin"):
        return Tracked(getattr(torch, kind)(x.value, dim), x.error.amax(dim), dtype)
    if kind == "prod":
        return _product(x, dim, dtype)
    total = sum_bound(x, dim, accumulation_dtype(dtype))
    if kind == "sum":
        return rounded(total.value, total.error, dtype)
    count = x.value.size(dim)
    is_approximate = count & (count - 1) != 0
    return rounded(total.value / count, total.error / count, dtype, is_approximate=is_approximate)


def _place(kind: str, x: Tracked, dim: int) -> Tracked:
    found = getattr(torch, kind)(x.value, dim)
    values = x.value.double() if kind == "argmax" else -x.value.double()
    winner = values.gather(dim, found.unsqueeze(dim))
    doubt = x.error + x.error.gather(dim, found.unsqueeze(dim))
    is_other = torch.ones_like(values, dtype=torch.bool)
    is_other.scatter_(dim, found.unsqueeze(dim), False)
    unsure = is_other & (doubt > 0) & ~(values + doubt < winner)
    return known(found, unsure.any(dim).double())


def _product(x: Tracked, dim: int, dtype: torch.dtype) -> Tracked:
    value, size = x.value.prod(dim), (x.value.abs() + x.error).prod(dim)
    unit = unit_roundoff(dtype)
    largest = (x.value.abs() + x.error).clamp(min=1).prod(dim)
    bound = size - value.abs() + 2 * (x.value.size(dim) + 1) * unit * size
    least, has_zero = x.value.abs().clamp(max=1).prod(dim), (x.value == 0).any(dim)
    lost = _underflow(largest, x.value.size(dim), dtype)
    bound = bound + torch.where((least < lost) & ~has_zero, lost, 0.0)
    is_exact = (largest < 1 / unit) & is_quantised(1.0, x)
    bound = torch.where(largest < _overflow(dtype), bound, math.inf)
    return rounded(value, torch.where(is_exact, 0.0, bound), dtype)


def _overflow(dtype: torch.dtype) -> float:
    """Where a product of some of the factors may become infinite, to meet a zero later."""
    return torch.finfo(torch.promote_types(dtype, torch.float32)).max


def _underflow(largest: torch.Tensor, count: int, dtype: torch.dtype) -> torch.Tensor:
    """What a product may lose where small factors meet first, before those above 1 (``largest``).

    A factor of zero makes zeros in any order.
    """
    return count * torch.finfo(torch.promote_types(dtype, torch.float32)).smallest_normal * largest


def scanned(kind: str, x: Tracked, dim: int, dtype: torch.dtype) -> Tracked:
    """Running sums or products."""
    function = getattr(torch, kind)
    if not dtype.is_floating_point:
        found = function(x.value, dim, dtype=dtype)
        return known(found, x.error.cumsum(dim))
    value, unit, count = function(x.value, dim), unit_roundoff(dtype), x.value.size(dim) + 1
    size = function(x.value.abs() + x.error, dim)
    if kind == "cumprod":
        largest = (x.value.abs() + x.error).clamp(min=1).cumprod(dim)
        bound = size - value.abs() + 2 * count * unit * size
        least, zeros = x.value.abs().clamp(max=1).cumprod(dim), (x.value == 0).cumsum(dim)
        lost = _underflow(largest, count, dtype)
        bound = bound + torch.where((least < lost) & (zeros == 0), lost, 0.0)
        bound = torch.where(largest < _overflow(dtype), bound, math.inf)
        is_exact = (largest < 1 / unit) & is_quantised(1.0, x)
    else:
        bound = x.error.cumsum(dim) + count * unit * size
        is_exact = x.value.abs().cumsum(dim) < exact_below(x, unit=unit)
    return rounded(value, torch.where(is_exact, 0.0, bound), dtype)


def accumulated(kind: str, start: Tracked, x: Tracked, dim: int) -> Tracked:
    """A value and the elements along an axis, combined in any grouping."""
    dtype = start.dtype
    if kind == "sum" and dtype.is_floating_point:
        # Partial sums are rounded to the operand's type, to the sum's, and to the accumulator's.
        types = [dtype, torch.sum(torch.ones(1, dtype=x.dtype)).dtype]
        narrow = max((t for t in types if t.is_floating_point), key=unit_roundoff)
        wide = cast(x, torch.float64)
        found = sum_bound(wide, dim, narrow, start)
        return rounded(found.value, 2 * found.error, dtype)
    if kind == "sum":
        total = start.value + x.value.sum(dim).to(dtype)
        return known(total, start.error + x.error.sum(dim))
    if kind == "any":
        return known(start.value | x.value.any(dim), start.error + x.error.amax(dim))
    part = cast(Tracked(getattr(torch, kind)(x.value, dim), x.error.amax(dim), x.dtype), dtype)
    combine = torch.maximum if kind == "amax" else torch.minimum
    return Tracked(combine(start.value, part.value), torch.maximum(start.error, part.error), dtype)


_coarse = [0.0]
"""What one addition in a product of 8-bit floats may lose, relative to the largest addend."""


def expect_matrix_units() -> None:
    """From now on 8-bit floats are multiplied as GPUs do: with 13 bits of fraction in sums."""
    _coarse[0] = 2.0**-13


def _lost_by_pairs(left: Tracked, right: Tracked) -> torch.Tensor:
    """What CPUs lose that multiply bf16 in pairs: subnormal factors and sums count as zero."""
    least, sizes = torch.finfo(torch.float32).smallest_normal, (left.value.abs(), right.value.abs())
    small = [torch.where(x < least, x, 0.0) for x in sizes]
    factors = small[0] @ sizes[1] + sizes[0] @ small[1]
    return factors.nan_to_num(0.0, 0.0, 0.0) + (left.value.size(1) + 2) * least


def added_product(
    left: Tracked, right: Tracked, dtype: torch.dtype, start: Tracked | None
) -> Tracked:
    """``start + left @ right`` with the inner axis added up in any grouping."""
    if not dtype.is_floating_point:
        value = left.value.to(dtype) @ right.value.to(dtype)
        doubt = left.error.sum(1)[:, None] + right.error.sum(0)[None, :]
        return known(value if start is None else value + start.value, doubt)
    common = torch.promote_types(left.dtype, right.dtype)
    left, right = cast(left, common), cast(right, common)
    value = left.value @ right.value
    sizes = [x.value.abs() + x.error.nan_to_num(posinf=0.0) for x in (left, right)]
    size = sizes[0] @ sizes[1]
    doubt = size - left.value.abs() @ right.value.abs()
    for x, dim in ((left, 1), (right, 0)):
        doubt = doubt + torch.where(x.error.isinf(), math.inf, 0.0).sum(dim, keepdim=True)
    operands = (left, right)
    if start is not None:
        value, size, doubt = value + start.value, size + start.value.abs(), doubt + start.error
        operands = (left, right, start)
    unit = unit_roundoff(accumulation_dtype(common) if dtype != torch.float64 else dtype)
    unit = max(unit, _coarse[0]) if common.itemsize == 1 else unit
    bound = doubt + 2 * (left.value.size(1) + 2) * unit * size
    if common == torch.bfloat16:
        bound = bound + _lost_by_pairs(left, right)
    is_exact = (size < exact_below(*operands, unit=unit)) & is_quantised(QUANTA[0], *operands)
    # One factor that is NaN is enough, whatever the others are.
    is_nan = left.value.isnan().any(1)[:, None] | right.value.isnan().any(0)[None, :]
    if start is not None:
        is_nan = is_nan | start.value.isnan()
    value = torch.where(is_nan, math.nan, value)
    return rounded(value, torch.where(is_exact | is_nan, 0.0, bound), dtype)
