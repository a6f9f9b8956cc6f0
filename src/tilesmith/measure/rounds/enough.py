"""Whether more samples would say more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilesmith.measure.statistics import summarize

FEWEST = 7
"""With fewer samples their spread says little."""


def are_sure(samples: Mapping[str, Sequence[float]], precision: float) -> bool:
    """Whether the medians of all are sure to a share at one sigma; 0 asks for all rounds.

    Example:
        >>> are_sure({"a": [1.0] * 6}, 0.01), are_sure({"a": [1.0] * 7}, 0.01)
        (False, True)
    """
    return precision > 0.0 and all(
        len(found) >= FEWEST and summarize(found).median_error <= precision
        for found in samples.values()
    )
