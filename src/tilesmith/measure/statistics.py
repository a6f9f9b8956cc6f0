"""Summaries of repeated timings: median, spread, and the interval a ratio of medians lies in.

Samples go in as plain floats in any one unit; nothing here knows a clock or a device.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import comb, erfc, sqrt

BOOTSTRAP_ROUNDS = 1000
TAIL = (1.0 - 0.95) / 2
"""Of the ratios drawn, what lies beyond each bound of an interval."""
EXACT_LIMIT = 10
"""Up to this many samples on a side, rank tests count arrangements instead of approximating."""


@dataclass(frozen=True)
class Summary:
    """Median and quartile-like marks of a series of timings, in the unit of the samples."""

    median: float
    low: float
    """20th percentile."""
    high: float
    """80th percentile."""
    fastest: float
    num_samples: int

    @property
    def spread(self) -> float:
        """Distance of the 80th from the 20th percentile, as a share of the median."""
        return (self.high - self.low) / self.median if self.median else 0.0

    @property
    def median_error(self) -> float:
        """One sigma of the median itself as a share, were the samples normal."""
        return 0.745 * self.spread / sqrt(self.num_samples)


@dataclass(frozen=True)
class Interval:
    """An estimate with the bounds it lies between, at a confidence of 95 %."""

    estimate: float
    low: float
    high: float


def quantile(samples: Sequence[float], share: float) -> float:
    """The value below which ``share`` (0 to 1) of the samples lie, interpolated linearly.

    Example:
        >>> quantile([1.0, 2.0, 4.0], 0.5)
        2.0
    """
    if not samples:
        raise ValueError("no samples")
    if not 0.0 <= share <= 1.0:
        raise ValueError(f"share must lie in [0, 1], found {share}")
    ordered = sorted(samples)
    position = share * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    fraction = position - below
    # Equal neighbours are returned as they are: interpolation would turn inf into NaN.
    if fraction == 0.0 or ordered[below] == ordered[above]:
        return ordered[below]
    return ordered[below] + fraction * (ordered[above] - ordered[below])


def median(samples: Sequence[float]) -> float:
    """The middle of the samples."""
    return quantile(samples, 0.5)


def summarize(samples: Sequence[float]) -> Summary:
    """Median, 20th and 80th percentile, minimum and count."""
    low, middle, high = (quantile(samples, share) for share in (0.2, 0.5, 0.8))
    return Summary(middle, low, high, min(samples), len(samples))


def ratio_interval(numerator: Sequence[float], denominator: Sequence[float]) -> Interval:
    """Bootstrap interval of ``median(numerator) / median(denominator)``, the same each time.

    An interval that contains 1.0 means that neither is shown to be faster.
    """
    draw = random.Random(0).choices
    ratios = [
        median(draw(numerator, k=len(numerator))) / median(draw(denominator, k=len(denominator)))
        for _ in range(BOOTSTRAP_ROUNDS)
    ]
    estimate = median(numerator) / median(denominator)
    return Interval(estimate, quantile(ratios, TAIL), quantile(ratios, 1.0 - TAIL))


def chance_of_ranks(slower: Sequence[float], faster: Sequence[float]) -> float:
    """How likely ranks like these, or more extreme, are if both come from one distribution.

    The one-sided test of Mann and Whitney: small when ``slower`` lies above ``faster``. Only the
    order of samples counts, so outliers weigh no more than other samples.

    Example:
        >>> chance_of_ranks([4.0, 5.0, 6.0], [1.0, 2.0, 3.0])
        0.05
    """
    wins = sum((s > f) + 0.5 * (s == f) for s in slower for f in faster)
    m, n = len(slower), len(faster)
    if min(m, n) <= EXACT_LIMIT and max(m, n) <= 8 * EXACT_LIMIT:
        # A tie counts half a win; rounding it down can only raise the chance.
        losses = m * n - int(wins)
        ways = sum(_arrangements(m, n, below) for below in range(losses + 1))
        return ways / comb(m + n, m)
    deviation = sqrt(m * n * (m + n + 1) / 12.0)
    return 0.5 * erfc((wins - m * n / 2.0 - 0.5) / deviation / sqrt(2.0))


@lru_cache(maxsize=1 << 16)
def _arrangements(m: int, n: int, losses: int) -> int:
    """Orders of m slow and n fast samples in which slow ones lose that many comparisons."""
    if losses < 0 or losses > m * n:
        return 0
    if m == 0 or n == 0:
        return 1
    # The largest sample is a slow one, which loses to none, or a fast one, which beats all m.
    return _arrangements(m - 1, n, losses) + _arrangements(m, n - 1, losses - m)
