"""Is a result right? Against eager in float64, with the budget of its type; integers exactly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tilesmith.numerics.compare import AccuracyError, ErrorReport, measure_error
from tools.op_table.samples import Sample


def tensors_of(result: Any) -> list[Any]:
    """The leaves of a result: one tensor, or those of a tuple."""
    if isinstance(result, (tuple, list)):
        return [leaf for part in result for leaf in tensors_of(part)]
    return [result]


def exact_results(
    fn: Callable[..., Any], sample: Sample, *, is_elementwise: bool
) -> list[Any] | None:
    """The results of eager in float64 on the same values; None where it has no such form."""

    def widened(tensor: torch.Tensor) -> torch.Tensor:
        is_number = is_elementwise and tensor.dtype != torch.bool
        dtype = torch.float64 if tensor.is_floating_point() or is_number else tensor.dtype
        # A copy: some functions change their arguments.
        return tensor.to(dtype, copy=True)

    wide = sample.map_tensors(widened)
    kwargs = {
        name: torch.float64 if isinstance(value, torch.dtype) and value.is_floating_point else value
        for name, value in wide.kwargs.items()
    }
    try:
        return tensors_of(fn(*wide.args, **kwargs))
    except (RuntimeError, TypeError, ValueError, NotImplementedError):
        return None


def explain_error(
    actual: torch.Tensor,
    eager: torch.Tensor,
    exact: Any,
    num_terms: int,
    rounded_inside: torch.dtype | None = None,
) -> str | None:
    """What is wrong with a result; None when nothing is.

    Elements equal to eager's are right by definition. The others must be within the budget around
    the float64 result, or no further from it than twice what eager itself is at its worst.
    """
    if not actual.is_floating_point():
        differ = int((actual != eager).sum())
        return f"{differ} of {actual.numel()} elements differ" if differ else None
    has_exact = isinstance(exact, torch.Tensor) and exact.dtype == torch.float64
    reference = exact if has_exact and exact.shape == actual.shape else eager.double()
    is_same = (actual == eager) | (actual.isnan() & eager.isnan())
    reference = torch.where(is_same, actual.double(), reference)
    try:
        ours = measure_error(
            actual, reference, reduction_length=num_terms, intermediate=rounded_inside
        )
        if ours.is_within_budget or _is_within_twice_the_budget(ours):
            return None
        theirs = measure_error(eager, reference, reduction_length=num_terms)
    except AccuracyError as error:
        return str(error)
    if ours.max_ulp <= 2 * theirs.max_ulp < float("inf"):
        return None
    return _first_line(ours, theirs)


def _is_within_twice_the_budget(report: ErrorReport) -> bool:
    """For float64, whose reference has no more digits and may itself use up the budget."""
    is_double = report.budget is not None and report.budget.dtype == torch.float64
    worst = abs(report.worst_actual - report.worst_reference)
    return is_double and worst <= 2 * report.worst_allowed


def explain_zeros(actual: torch.Tensor, eager: torch.Tensor, exact: Any) -> str | None:
    """Whether a zero has a sign that neither eager result has: eager's two may differ."""
    if not actual.is_floating_point():
        return None
    is_wrong = (actual == 0) & (eager == 0) & (eager.signbit() != actual.signbit())
    if isinstance(exact, torch.Tensor) and exact.shape == actual.shape:
        is_wrong &= (exact == 0) & (exact.signbit() != actual.signbit())
    return "a zero has the wrong sign" if bool(is_wrong.any()) else None


def _first_line(ours: ErrorReport, theirs: ErrorReport) -> str:
    return (
        f"{ours.num_beyond} of {ours.num_elements} beyond the budget; worst {ours.worst_actual!r} "
        f"for {ours.worst_reference!r}, {ours.max_ulp:.3g} ulp (eager {theirs.max_ulp:.3g})"
    )
