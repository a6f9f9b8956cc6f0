"""The rank correlation of predicted and measured times."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from statistics import StatisticsError, correlation


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float:
    """Spearman's correlation, from -1 to 1; 0 where one of the two does not vary.

    Example:
        >>> rank_correlation([1.0, 2.0, 3.0], [10.0, 100.0, 1000.0])
        1.0
    """
    try:
        return correlation(_ranks(first), _ranks(second))
    except StatisticsError:
        return 0.0


def _ranks(values: Sequence[float]) -> list[float]:
    """Ranks from 0; equal values share the mean of theirs."""
    ordered = sorted(values)
    return [(bisect_left(ordered, x) + bisect_right(ordered, x) - 1) / 2 for x in values]
