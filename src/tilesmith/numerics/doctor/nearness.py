"""Which implementation is nearest to the truth, and which tolerance is justified."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from tilesmith.dtypes import DTYPES_BY_NAME
from tilesmith.interpreter.torch_dtypes import to_torch
from tilesmith.numerics.doctor.findings import (
    AS_WRITTEN,
    OURS,
    CauseKind,
    Examination,
    Finding,
    Outputs,
)
from tilesmith.numerics.doctor.reruns import ErrorSources
from tilesmith.numerics.float_standard import rms
from tilesmith.numerics.tolerance import Budget, derive_budget

SAME_LEVEL = 3.0
"""Times what two results with independent roundings are expected to be apart."""
SAME_FORMULA = 1e-6
"""Relative norm: fp64 leaves no more between two ways to write one formula."""
_AS_CLOSE = 1.05
BETWEEN_TWO = 2
"""Two results that are each off by their allowance differ by as much as both together."""


def closest_to_truth(examination: Examination) -> str:
    """The implementation with the smallest errors, all outputs together; empty if there is none."""
    errors = {
        name: _error_of(examination, name) for name in examination.outputs if name != AS_WRITTEN
    }
    return min(errors, key=errors.__getitem__, default="")


def compare_pairs(examination: Examination, sources: tuple[ErrorSources, ...]) -> Iterator[Finding]:
    """The kernel with each of the others: who is closer, and whether roundings explain it."""
    ours = examination.outputs.get(OURS)
    if ours is None:
        return
    for name, outputs in examination.outputs.items():
        if name not in (OURS, AS_WRITTEN):
            yield _compare(examination, name, ours, outputs, sources)


def distance_in_fp64(examination: Examination, name: str) -> float | None:
    """How far the formula of another implementation is from the truth, without its roundings."""
    wide = examination.wide.get(name)
    if wide is None:
        return None
    tensors = examination.subject.reference.tensors
    found = [_apart(examination, output, x.truth, wide[output]) for output, x in tensors.items()]
    known = [distance for distance in found if distance is not None]
    return max(known, default=None)


def _compare(
    examination: Examination,
    name: str,
    ours: Outputs,
    theirs: Outputs,
    sources: tuple[ErrorSources, ...],
) -> Finding:
    mine, other = _error_of(examination, OURS), _error_of(examination, name)
    near, far = (OURS, name) if mine <= other else (name, OURS)
    ratio = max(mine, other) / max(min(mine, other), 1e-300)
    truth = _truth_text(examination, name)
    text = f"{near} is closer to {truth} than {far}"
    if ratio < _AS_CLOSE:
        text = f"{OURS} and {name} are equally close to {truth}"
    evidence = [f"relative norm of all errors: {OURS} {mine:.3g}, {name} {other:.3g}"]
    for output in examination.subject.reference.tensors:
        apart = _apart(examination, output, ours[output], theirs[output])
        if apart is not None:
            evidence.append(_level_text(output, apart, sources))
    return Finding(CauseKind.FINE, text, tuple(evidence), name)


def _truth_text(examination: Examination, name: str) -> str:
    """What errors are measured by, where it is open which of two formulas is meant."""
    apart = distance_in_fp64(examination, name) or 0.0
    is_open = apart > SAME_FORMULA and not examination.subject.is_reference_given
    return "what the kernel's own formula gives" if is_open else "the truth"


def _level_text(output: str, apart: float, sources: tuple[ErrorSources, ...]) -> str:
    text = f"`{output}`: they differ by {apart:.2g} (relative norm)"
    source = next((s for s in sources if s.output == output), None)
    if source is None:
        return text
    usual = math.sqrt(2.0) * source.total
    narrow = sorted({s.dtype for s in (*source.roundings, *source.sums)})
    what = f" of intermediates to {', '.join(narrow)} and of the result" if narrow else ""
    if apart <= SAME_LEVEL * usual:
        return f"{text}, the level of roundings{what} ({usual:.2g})"
    return f"{text}, beyond the level of roundings{what} ({usual:.2g})"


def _apart(
    examination: Examination, output: str, ours: torch.Tensor, theirs: torch.Tensor
) -> float | None:
    known = examination.subject.reference.tensors[output]
    if not ours.is_floating_point() or not theirs.is_floating_point():
        return None
    mask = known.written & known.truth.isfinite()
    scale = rms(known.truth[mask].abs())
    left, right = ours.to(torch.float64)[mask], theirs.to(torch.float64)[mask]
    # Both may have overflowed to the same infinity, the difference of which is no number.
    difference = torch.where(left == right, 0.0, (left - right).abs())
    return rms(difference.nan_to_num(nan=math.inf)) / (scale or 1.0)


def _error_of(examination: Examination, name: str) -> float:
    norms = [s.relative_norm for s in examination.statistics_of(name)]
    return math.sqrt(sum(norm**2 for norm in norms) / len(norms)) if norms else math.inf


def justified_tolerance(examination: Examination, sources: tuple[ErrorSources, ...]) -> str:
    """For each float output, what two right results may differ by."""
    reference = examination.subject.reference
    parts: list[str] = []
    for name, tensor in reference.tensors.items():
        if not tensor.native.is_floating_point():
            continue
        budget = _budget(tensor.native.dtype, reference.sum_length, sources, name)
        known = tensor.truth[tensor.written & tensor.truth.isfinite()]
        scale = rms(known.abs()) if known.numel() else 0.0
        rtol = BETWEEN_TWO * budget.value_coefficient
        atol = BETWEEN_TWO * (budget.scale_coefficient * scale + budget.absolute_floor)
        parts.append(f"{name}: rtol={rtol:.1e}, atol={atol:.1e}")
    return "; ".join(parts)


def _budget(
    dtype: torch.dtype, sum_length: int, sources: tuple[ErrorSources, ...], output: str
) -> Budget:
    found = next((s for s in sources if s.output == output), None)
    roundings = () if found is None else (*found.roundings, *found.sums)
    narrow = [DTYPES_BY_NAME[s.dtype] for s in roundings]
    coarse = [to_torch(d) for d in narrow if d.is_low_precision_float]
    return derive_budget(dtype, sum_length, coarse)
