"""How far outputs are from the truth and from each other, and which tolerance is justified.

All implementations are measured in ulps of the kernel's own type, so that they can be compared.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch

from tilesmith.dtypes import DTYPES_BY_NAME
from tilesmith.interpreter.torch_dtypes import to_torch
from tilesmith.numerics.compare import measure_elements, relative_norm
from tilesmith.numerics.doctor.findings import (
    AS_WRITTEN,
    OURS,
    CauseKind,
    ErrorSources,
    ErrorStatistics,
    Examination,
    Finding,
    Outputs,
    WorstElement,
)
from tilesmith.numerics.judge import Judge
from tilesmith.numerics.oracle import Reference, ReferenceTensor
from tilesmith.numerics.tally import ElementErrors
from tilesmith.numerics.tolerance import Budget, derive_budget, rms, unravel

LOWEST, HIGHEST = -3, 30
"""Buckets hold errors above half of 2**b and up to 2**b ulp; the first all smaller ones too."""
WRONG = HIGHEST + 1
"""The bucket of NaN and infinity where they should not be, or missing where they should."""
BAR = 10
RARE = 0.0005
"""A tail of buckets that all have less is one line."""


def count_errors(ulps: torch.Tensor) -> dict[int, int]:
    """How many errors each bucket has; empty ones at either end are left out."""
    # frexp gives a mantissa in [0.5, 1): exactly a power of two belongs to the bucket below.
    mantissa, exponent = torch.frexp(ulps.nan_to_num(posinf=0.0))
    bucket = torch.where(mantissa == 0.5, exponent - 1, exponent)
    bucket = torch.where(ulps == 0, LOWEST, bucket).clamp(LOWEST, HIGHEST)
    bucket = torch.where(ulps.isfinite(), bucket, WRONG)
    found, counts = bucket.unique(return_counts=True)
    return dict(zip(found.tolist(), counts.tolist()))


def histogram_lines(columns: Sequence[ErrorStatistics]) -> Iterator[str]:
    """Errors of one output by several implementations, side by side."""
    rows = _rows(columns)
    width = max((len(label) for label, _ in rows), default=0)
    names = "  ".join(column.implementation.ljust(BAR + 8) for column in columns)
    highest = max((_share(c, buckets) for _, buckets in rows for c in columns), default=1.0)
    if rows:
        yield f"{'ulp'.rjust(width)}  {names}".rstrip()
    for label, buckets in rows:
        cells = "  ".join(_cell(_share(column, buckets), highest) for column in columns)
        yield f"{label.rjust(width)}  {cells}".rstrip()


def _rows(columns: Sequence[ErrorStatistics]) -> list[tuple[str, range]]:
    """Labels, and the buckets that they stand for: neighbours that are empty share a line."""
    found = sorted({bucket for column in columns for bucket in column.histogram})
    plain = [bucket for bucket in found if bucket != WRONG]
    rows: list[tuple[str, range]] = []
    if plain:
        common = [b for b in plain if any(_share(c, range(b, b + 1)) >= RARE for c in columns)]
        last = max([plain[0], *common])
        rows = [(f"<= {power_text(b[-1])}", b) for b in _ranges(columns, range(plain[0], last + 1))]
        if plain[-1] > last:
            rows.append((f"> {power_text(last)}", range(last + 1, plain[-1] + 1)))
    if WRONG in found:
        rows.append(("NaN or inf", range(WRONG, WRONG + 1)))
    return rows


def _ranges(columns: Sequence[ErrorStatistics], buckets: range) -> Iterator[range]:
    """One range for each bucket, and one for all in a row that no implementation has."""
    start = buckets.start
    for bucket in buckets:
        is_empty = [
            not any(_share(column, range(b, b + 1)) for column in columns)
            for b in (bucket, bucket + 1)
        ]
        if not all(is_empty):
            yield range(start, bucket + 1)
            start = bucket + 1


def power_text(bucket: int) -> str:
    """The errors in ulp that a bucket holds at most."""
    return str(1 << bucket) if bucket >= 0 else f"1/{1 << -bucket}"


def _share(column: ErrorStatistics, buckets: range) -> float:
    count = sum(column.histogram.get(bucket, 0) for bucket in buckets)
    return count / max(1, sum(column.histogram.values()))


def _cell(share: float, highest: float) -> str:
    percent = "." if share == 0.0 else f"{share:.1%}" if share >= RARE else "<0.1%"
    return f"{percent:>6}  {'#' * math.ceil(share / highest * BAR):<{BAR}}"


class Yardstick:
    """Measures outputs of implementations against one reference."""

    def __init__(self, reference: Reference, num_worst: int) -> None:
        self._tensors = reference.tensors
        self._num_worst = num_worst
        self._judges = {
            name: Judge(replace(reference, tensors={name: tensor}))
            for name, tensor in reference.tensors.items()
        }

    def measure(self, implementation: str, outputs: Outputs) -> Iterator[ErrorStatistics]:
        """Statistics of every output whose truth is known."""
        for name, known in self._tensors.items():
            if name in outputs:
                yield self._measure(implementation, name, outputs[name], known)

    def _measure(
        self, implementation: str, name: str, output: torch.Tensor, known: ReferenceTensor
    ) -> ErrorStatistics:
        dtype = known.native.dtype
        positions = known.written.flatten().nonzero().flatten()
        got = output.reshape(-1)[positions]
        truth = known.truth.reshape(-1)[positions]
        errors = measure_elements(got, truth, dtype)
        ulps = errors.absolute / errors.spacing
        signed = (got.double() - truth.double()).sign() * ulps
        floor = Budget(dtype).absolute_floor if dtype.is_floating_point else 0.0
        # Other floats are as good; integers are compared bit by bit.
        comparable = output if dtype.is_floating_point else output.to(dtype)
        report = self._judges[name].check({name: comparable})
        return ErrorStatistics(
            implementation,
            name,
            dtype,
            got.numel(),
            max_ulp=_rank(ulps, 1.0),
            median_ulp=_rank(ulps, 0.5),
            p99_ulp=_rank(ulps, 0.99),
            max_abs=_rank(errors.absolute, 1.0),
            relative_norm=relative_norm(errors.absolute, errors.reference, floor),
            bias_ulp=_rank(signed[signed.isfinite()], 0.5),
            histogram=count_errors(ulps),
            worst=tuple(self._worst(errors, (got, truth), positions, known.truth.shape)),
            fault=report.reason,
        )

    def _worst(
        self,
        errors: ElementErrors,
        values: tuple[torch.Tensor, torch.Tensor],
        positions: torch.Tensor,
        shape: torch.Size,
    ) -> Iterator[WorstElement]:
        """The largest errors in ulps, and the largest of all."""
        ulps, (got, truth) = errors.absolute / errors.spacing, values
        if not ulps.numel():
            return
        ranked = ulps.topk(min(self._num_worst, ulps.numel())).indices.tolist()
        largest = int(errors.absolute.argmax())
        for place in dict.fromkeys([*ranked, largest]):
            if float(errors.absolute[place]) > 0.0:
                index = unravel(int(positions[place]), shape)
                exact, error = float(truth[place]), float(ulps[place])
                yield WorstElement(index, float(got[place]), exact, error)


def _rank(values: torch.Tensor, share: float) -> float:
    """The value that this share of all is not above; 0 if there are none."""
    if not values.numel():
        return 0.0
    return float(values.kthvalue(max(1, math.ceil(share * values.numel()))).values)


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
    # What errors are measured by, where it is open which of two formulas is meant.
    apart = distance_in_fp64(examination, name) or 0.0
    is_open = apart > SAME_FORMULA and not examination.subject.is_reference_given
    truth = "what the kernel's own formula gives" if is_open else "the truth"
    text = f"{near} is closer to {truth} than {far}"
    if ratio < _AS_CLOSE:
        text = f"{OURS} and {name} are equally close to {truth}"
    evidence = [f"relative norm of all errors: {OURS} {mine:.3g}, {name} {other:.3g}"]
    for output in examination.subject.reference.tensors:
        apart = _apart(examination, output, ours[output], theirs[output])
        if apart is not None:
            evidence.append(_level_text(output, apart, sources))
    return Finding(CauseKind.FINE, text, tuple(evidence), name)


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
        roundings = [r for s in sources if s.output == name for r in (*s.roundings, *s.sums)]
        narrow = [DTYPES_BY_NAME[rounding.dtype] for rounding in roundings]
        coarse = [to_torch(dtype) for dtype in narrow if dtype.is_low_precision_float]
        budget = derive_budget(tensor.native.dtype, reference.sum_length, coarse)
        known = tensor.truth[tensor.written & tensor.truth.isfinite()]
        scale = rms(known.abs()) if known.numel() else 0.0
        rtol = BETWEEN_TWO * budget.value_coefficient
        atol = BETWEEN_TWO * (budget.scale_coefficient * scale + budget.absolute_floor)
        parts.append(f"{name}: rtol={rtol:.1e}, atol={atol:.1e}")
    return "; ".join(parts)
