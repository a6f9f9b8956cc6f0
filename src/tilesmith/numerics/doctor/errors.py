"""How far outputs are from the truth: statistics in ulps, a histogram, and the worst elements.

All implementations are measured in ulps of the kernel's own type, so that they can be compared.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch

from tilesmith.numerics.compare import ElementErrors, measure_elements, relative_norm
from tilesmith.numerics.doctor.findings import ErrorStatistics, Outputs, WorstElement
from tilesmith.numerics.judge import Judge
from tilesmith.numerics.judge_report import unravel
from tilesmith.numerics.oracle import Reference, ReferenceTensor
from tilesmith.numerics.tolerance import Budget

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
        rows = [(f"<= {_power(b[-1])}", b) for b in _ranges(columns, range(plain[0], last + 1))]
        if plain[-1] > last:
            rows.append((f"> {_power(last)}", range(last + 1, plain[-1] + 1)))
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


def _power(bucket: int) -> str:
    return str(1 << bucket) if bucket >= 0 else f"1/{1 << -bucket}"


def _share(column: ErrorStatistics, buckets: range) -> float:
    count = sum(column.histogram.get(bucket, 0) for bucket in buckets)
    return count / max(1, sum(column.histogram.values()))


def _cell(share: float, highest: float) -> str:
    return f"{_percent(share):>6}  {'#' * math.ceil(share / highest * BAR):<{BAR}}"


def _percent(share: float) -> str:
    if share == 0.0:
        return "."
    return f"{share:.1%}" if share >= RARE else "<0.1%"


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
        errors = _errors(got, truth, dtype)
        ulps = errors.absolute / errors.spacing
        signed = (got.double() - truth.double()).sign() * ulps
        floor = Budget(dtype).absolute_floor if dtype.is_floating_point else 0.0
        report = self._judges[name].check({name: _comparable(output, dtype)})
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


def _errors(got: torch.Tensor, truth: torch.Tensor, dtype: torch.dtype) -> ElementErrors:
    if dtype.is_floating_point:
        return measure_elements(got, truth, dtype)
    off = (got.double() - truth.double()).abs()
    # float64 cannot tell neighbouring large integers apart; they differ by at least one.
    off = torch.where(got != truth, off.clamp(min=1.0), 0.0)
    return ElementErrors(off, torch.ones_like(off), truth.double())


def _comparable(output: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Other floats are as good; integers are compared bit by bit."""
    return output if dtype.is_floating_point else output.to(dtype)


def _rank(values: torch.Tensor, share: float) -> float:
    """The value that this share of all is not above; 0 if there are none."""
    if not values.numel():
        return 0.0
    return float(values.kthvalue(max(1, math.ceil(share * values.numel()))).values)
