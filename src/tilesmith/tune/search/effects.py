"""How much each dimension of a search matters: expected before, corrected by what is measured."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilesmith.schedule.space.dimensions import Dimension
from tilesmith.schedule.space.keys import KEYS_BY_NAME
from tilesmith.tune.search.encoding import Array

EXPECTED_EFFECTS = {
    "block_sizes": 0.25,
    "reduction_loops": 0.15,
    "num_warps": 0.15,
    "num_stages": 0.10,
    "flatten_loops": 0.10,
    "indexing": 0.08,
    "pid_type": 0.08,
    "cpu_threads": 0.20,
    "cpu_unroll": 0.08,
    "cpu_streaming_stores": 0.10,
}
"""Relative change of the time at one step, typically; of keys that change code most."""
SMALL_EFFECT = 0.04
UNKNOWN_EFFECT = 0.20
"""Of the user's own tunables."""
EXPECTATION_WEIGHT = 2.0
"""The expectation counts like this many measurements."""
MAX_EFFECT = 1.5
"""A larger change of the logarithm tells no more than "large"."""


def _expected_effect(dimension: Dimension) -> float:
    if dimension.key not in KEYS_BY_NAME:
        return UNKNOWN_EFFECT
    return EXPECTED_EFFECTS.get(dimension.key, SMALL_EFFECT)


class Effects:
    """The root mean square change of the logarithmic time per step, for each dimension."""

    def __init__(self, dimensions: Sequence[Dimension]) -> None:
        self._dimensions = tuple(dimensions)
        self._expected = np.array([_expected_effect(item) for item in dimensions]) ** 2
        self.sizes: Array = np.sqrt(self._expected)

    def fit(self, distances: Array, values: Array) -> None:
        """Learn from measured pairs that differ along one dimension only."""
        steps = np.triu((distances > 0).sum(axis=2) == 1, k=1)
        first, second = np.nonzero(steps)
        changed = distances[first, second].argmax(axis=1)
        lengths = distances[first, second, changed]
        change = np.minimum(np.abs(values[first] - values[second]), MAX_EFFECT) ** 2
        count = len(self._dimensions)
        # Changes add up like the steps of a random walk.
        sums = np.bincount(changed, weights=change / lengths, minlength=count)
        counts = np.bincount(changed, minlength=count)
        prior = EXPECTATION_WEIGHT * self._expected
        self.sizes = np.sqrt((prior + sums) / (EXPECTATION_WEIGHT + counts))

    def ranking(self) -> list[tuple[Dimension, float]]:
        """Dimensions with their effects, the one that matters most first."""
        pairs = zip(self._dimensions, map(float, self.sizes))
        return sorted(pairs, key=lambda pair: -pair[1])
