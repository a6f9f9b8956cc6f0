"""A predicted time, with what it is made of."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Prediction:
    """The time of one launch, in milliseconds, and the parts that compete for it.

    The parts overlap: the total is near the largest of them, not their sum.
    """

    total_ms: float
    compute_ms: float
    """Busiest multiprocessor or core: products, arithmetic, operands from the shared cache."""
    memory_ms: float
    latency_ms: float
    """Of programs that wait for their loads and reductions, one after the other."""
    waves: float = 1.0
    """How often the device is filled with programs."""
    occupancy: float = 1.0
    """Programs resident on one multiprocessor."""
    limiter: str = ""
    """What takes longest, in words."""

    def __str__(self) -> str:
        parts = f"compute {self.compute_ms:.4g}, memory {self.memory_ms:.4g}"
        total = f"{self.total_ms:.4g} ms ({parts}, latency {self.latency_ms:.4g})"
        return f"{total}: {self.limiter}; {self.waves:.3g} waves of {self.occupancy:g} programs"


def blend(times: tuple[float, ...], sharpness: float = 6.0) -> float:
    """A maximum with rounded corners: what is nearly as long as the longest shows a little."""
    longest = max(times, default=0.0)
    if longest <= 0.0:
        return 0.0
    return longest * sum((time / longest) ** sharpness for time in times) ** (1 / sharpness)
