"""Errors counted by powers of two of an ulp, and as text: one column per implementation."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch

from tilesmith.numerics.doctor.findings import ErrorStatistics

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
