"""Sequential elimination: how long a candidate is measured before it is known to be slower.

Samples come in growing batches, next to samples of the best so far. After each batch a rank test
asks whether the candidate is slower by more than a margin; one unlucky sample cannot decide it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from tilesmith.measure.statistics import chance_of_ranks, median


class Decision(Enum):
    """What to do with a candidate after a batch."""

    CONTINUE = "continue"
    DROP = "drop"
    KEEP = "keep"
    """All samples are there and it is not shown to be slower."""


@dataclass(frozen=True)
class Elimination:
    """The rule, with its constants."""

    batches: tuple[int, ...] = (3, 5, 10, 20)
    margin: float = 0.01
    """Slower by less than this share is not worth to be told apart now: the finals will."""
    significance: float = 0.001
    """Largest chance, per batch, to drop a candidate that is in truth within the margin."""
    clear_ratio: float = 1.15
    """When every sample is above this multiple of the best's median, ranks are not needed."""
    hopeless_ratio: float = 3.0
    confirmed_ratio: float = 2.0
    """What one more look at a hopeless candidate must confirm."""
    num_hopeless_samples: int = 2

    def repeats(self, num_samples: int) -> int:
        """The size of the next batch; 0 when there is none."""
        return next((size for size, end in self._ends() if num_samples < end), 0)

    def decide(self, candidate: Sequence[float], best: Sequence[float]) -> Decision:
        """Judge the samples so far; ``best`` was measured alongside (or is empty: no best yet)."""
        if best and self._is_slower(candidate, best):
            return Decision.DROP
        return Decision.CONTINUE if self.repeats(len(candidate)) else Decision.KEEP

    def is_hopeless(self, first_ms: float, best_ms: float) -> bool:
        """Whether a single rough time is so bad that two more samples may settle it."""
        return first_ms > self.hopeless_ratio * best_ms > 0.0

    def confirms_hopeless(self, candidate: Sequence[float], best_ms: float) -> bool:
        """Whether every further sample of a hopeless candidate is bad as well."""
        return min(candidate) > self.confirmed_ratio * best_ms

    def _is_slower(self, candidate: Sequence[float], best: Sequence[float]) -> bool:
        if min(candidate) > self.clear_ratio * median(best):
            return True
        allowed = [sample * (1.0 + self.margin) for sample in best]
        if median(candidate) <= median(allowed):
            return False
        return chance_of_ranks(candidate, allowed) < self.significance

    def _ends(self) -> Iterator[tuple[int, int]]:
        end = 0
        for size in self.batches:
            end += size
            yield size, end
