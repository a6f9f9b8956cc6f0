"""Judge a result against a float64 reference: an ErrorReport, or AccuracyError when beyond budget.

The reference must be computed in float64 from the very inputs the kernel saw, upcast, so that all
the error belongs to the result. Integers and booleans must be equal.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch

from tilesmith.numerics import tolerance
from tilesmith.numerics.tally import ElementErrors, scale_of, tally


class AccuracyError(AssertionError):
    """A result differs from its reference by more than its budget allows."""


@dataclass(frozen=True)
class ErrorReport:
    """How far a result is from its reference.

    Attributes:
        max_ulp: largest error in ulps of the result's type at the reference.
        max_abs: largest absolute error.
        relative_norm: ``norm(actual - reference) / norm(reference)`` over all elements.
        worst_index: the element that uses most of its allowance; None for an empty tensor.
        worst_actual: its value in the result.
        worst_reference: its value in the reference.
        worst_allowed: the absolute error it was allowed.
        num_beyond: elements beyond their allowance, mismatched NaN and infinity included.
        num_elements: elements compared.
        budget: what was allowed; None for exact types.
    """

    max_ulp: float
    max_abs: float
    relative_norm: float
    worst_index: tuple[int, ...] | None
    worst_actual: float
    worst_reference: float
    worst_allowed: float
    num_beyond: int
    num_elements: int
    budget: tolerance.Budget | None

    @property
    def is_within_budget(self) -> bool:
        """Whether every element and the norm are within their allowance."""
        limit = self.budget.relative_norm if self.budget is not None else 0.0
        return self.num_beyond == 0 and self.relative_norm <= limit

    def __str__(self) -> str:
        budget, limit = self.budget, ""
        if budget is not None:
            basis = f"{budget.dtype}, reduction length {budget.reduction_length}"
            limit = f", allowed {budget.relative_norm:.4g} ({basis})"
        lines = [f"{self.num_beyond} of {self.num_elements} elements are beyond the budget"]
        if self.worst_index is not None:
            error = abs(self.worst_actual - self.worst_reference)
            lines.append(
                f"  worst element {list(self.worst_index)}: got {self.worst_actual!r}, "
                f"expected {self.worst_reference!r}"
            )
            lines.append(f"  its error: {error:.4g}, allowed {self.worst_allowed:.4g}")
        lines.append(f"  largest error: {self.max_abs:.4g} absolute, {self.max_ulp:.4g} ulp")
        lines.append(f"  relative norm of the error: {self.relative_norm:.4g}{limit}")
        return "\n".join(lines)


def check_against(
    actual: torch.Tensor,
    reference: torch.Tensor,
    *,
    reduction_length: int = 1,
    dtype: torch.dtype | None = None,
    intermediate: torch.dtype | Sequence[torch.dtype] | None = None,
) -> ErrorReport:
    """Compare a result with its float64 reference; raise AccuracyError when beyond the budget.

    Args:
        actual: the result under test.
        reference: the same computation in float64 on the same inputs (same dtype for exact types).
        reduction_length: terms of the longest sum behind one element; 2 where terms may cancel.
        dtype: the type the result must have; by default the type it has.
        intermediate: narrower type(s) intermediates are rounded to, one per rounding
            (``torch.float16`` stands for tf32 too: the significands are equally long).
    """
    report = measure_error(
        actual, reference, reduction_length=reduction_length, dtype=dtype, intermediate=intermediate
    )
    if not report.is_within_budget:
        raise AccuracyError(str(report))
    return report


def measure_error(
    actual: torch.Tensor,
    reference: torch.Tensor,
    *,
    reduction_length: int = 1,
    dtype: torch.dtype | None = None,
    intermediate: torch.dtype | Sequence[torch.dtype] | None = None,
) -> ErrorReport:
    """The report of ``check_against`` without the verdict; shape and type must still match."""
    budget = tolerance.derive_budget(actual.dtype, reduction_length, intermediate)
    return measure_by(budget, actual, reference, dtype=dtype)


def measure_by(
    budget: tolerance.Budget | None,
    actual: torch.Tensor,
    reference: torch.Tensor,
    sizes: torch.Tensor | None = None,
    dtype: torch.dtype | None = None,
) -> ErrorReport:
    """The report by a budget, which exact types have no use for; ``sizes`` are as it takes them."""
    _check_form(actual, reference, dtype)
    actual, reference = actual.detach(), reference.detach().to(actual.device)
    budget = budget if actual.dtype.is_floating_point else None
    if actual.numel() == 0:
        return ErrorReport(0.0, 0.0, 0.0, None, 0.0, 0.0, 0.0, 0, 0, budget)
    form = partial(measure_elements, dtype=actual.dtype)
    scale = scale_of(reference, partial(_scaling, dtype=actual.dtype))
    found = tally(budget, (actual, reference), sizes, scale, form)
    index = tolerance.unravel(found.worst_place, actual.shape)
    # Zeros and subnormals have no meaningful relative error; their elements are still checked.
    is_tiny = found.max_abs <= (budget.absolute_floor if budget else 0.0)
    return ErrorReport(
        max_ulp=found.max_ulp,
        max_abs=found.max_abs,
        relative_norm=0.0 if is_tiny else found.relative_norm,
        worst_index=index,
        worst_actual=float(actual[index]),
        worst_reference=float(reference[index]),
        worst_allowed=found.worst_allowed,
        num_beyond=found.num_beyond,
        num_elements=actual.numel(),
        budget=budget,
    )


def _check_form(actual: torch.Tensor, reference: torch.Tensor, dtype: torch.dtype | None) -> None:
    if actual.shape != reference.shape:
        raise AccuracyError(
            f"shapes differ: got {tuple(actual.shape)}, expected {tuple(reference.shape)}"
        )
    if dtype is not None and actual.dtype != dtype:
        raise AccuracyError(f"dtypes differ: got {actual.dtype}, expected {dtype}")
    if actual.dtype.is_complex:
        raise TypeError(f"complex results are not supported, found {actual.dtype}")
    expected = torch.float64 if actual.dtype.is_floating_point else actual.dtype
    if reference.dtype == expected:
        return
    if reference.dtype.is_floating_point != actual.dtype.is_floating_point:
        raise AccuracyError(f"dtypes differ: got {actual.dtype}, expected {reference.dtype}")
    if actual.dtype.is_floating_point:
        # Two low-precision results say nothing about which one is wrong.
        raise TypeError(
            f"the reference has dtype {reference.dtype}: compute it in torch.float64 "
            "from the same inputs upcast"
        )
    raise AccuracyError(f"dtypes differ: got {actual.dtype}, expected {reference.dtype}")


def measure_elements(
    actual: torch.Tensor, reference: torch.Tensor, dtype: torch.dtype
) -> ElementErrors:
    """The error of each element; floats are to be rounded to ``dtype``, integers to be equal."""
    if not dtype.is_floating_point:
        off = (actual.double() - reference.double()).abs()
        # float64 cannot tell neighbouring large int64 values apart; they differ by at least one.
        off = torch.where(actual != reference, off.clamp(min=1.0), 0.0)
        return ElementErrors(off, torch.ones_like(off), _scaling(reference, dtype))
    error = _absolute_error(actual, reference, dtype)
    capped = _scaling(reference, dtype)
    return ElementErrors(error, tolerance.ulp_at(capped, dtype), capped)


def _scaling(reference: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """What sets the scale of errors, as float64."""
    if not dtype.is_floating_point:
        return reference.double()
    return _cap(reference, dtype).masked_fill(reference.isinf(), 0.0)


def _absolute_error(
    actual: torch.Tensor, reference: torch.Tensor, dtype: torch.dtype
) -> torch.Tensor:
    """|actual - reference| in float64, infinite where NaN or infinity does not match.

    A finite reference beyond the type's range expects what rounding gives there.
    """
    got = actual.to(torch.float64)
    rounded = reference.to(dtype).to(torch.float64)
    error = (_cap(got, dtype) - _cap(reference, dtype)).abs()
    must_match = reference.isnan() | reference.isinf() | got.isnan()
    error = torch.where(must_match, math.inf, error)
    out_of_range = reference.isnan() | (reference.abs() > torch.finfo(dtype).max)
    is_as_rounded = (got == rounded) | (got.isnan() & rounded.isnan())
    return torch.where(out_of_range & is_as_rounded, 0.0, error)


def _cap(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Magnitudes cut where the next binade begins: just missing an overflow is an ulp or two."""
    is_widest = dtype == torch.float64
    limit = (
        torch.finfo(dtype).max if is_widest else math.ldexp(1.0, tolerance.max_exponent(dtype) + 1)
    )
    return values.clamp(-limit, limit)


def relative_norm(error: torch.Tensor, reference: torch.Tensor, floor: float) -> float:
    """Error norm over reference norm, both scaled by the largest finite magnitude first."""
    # Zeros and subnormals have no meaningful relative error; their elements are still checked.
    if error.numel() == 0 or float(error.max()) <= floor:
        return 0.0
    magnitude = tolerance.finite_magnitude(reference)
    largest = float(magnitude.max())
    if largest == 0.0:
        return math.inf
    norm = float((magnitude / largest).square().sum().sqrt())
    return float((error / largest).square().sum().sqrt()) / norm
