"""Where numbers stand along an axis, and which of them are marked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, log10

MAX_MARKS = 9


@dataclass(frozen=True)
class Scale:
    """From a low to a high value, in equal steps or in equal factors."""

    low: float
    high: float
    is_log: bool = False

    @classmethod
    def around(cls, values: Sequence[float], factor: float = 1.6) -> Scale:
        """A logarithmic scale with room on both sides."""
        return cls(min(values) / factor, max(values) * factor, is_log=True)

    def share(self, value: float) -> float:
        """0 at the low end, 1 at the high one."""
        if self.is_log:
            return log10(value / self.low) / log10(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def marks(self) -> list[float]:
        """Round values on the scale, few enough to be read."""
        if self.is_log and self.high / self.low >= 8:
            return log_marks(self.low, self.high)
        return even_marks(self.low, self.high)


def even_marks(low: float, high: float, most: int = 7) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten.

    Example:
        >>> even_marks(0, 120)
        [0.0, 20.0, 40.0, 60.0, 80.0, 100.0, 120.0]
    """
    power = 10.0 ** floor(log10((high - low) / most))
    steps = (power * step for step in (1, 2, 5, 10, 20))
    step = next(s for s in steps if (high - low) / s <= most)
    return [
        round(n * step, 12) for n in range(ceil(low / step - 1e-9), floor(high / step + 1e-9) + 1)
    ]


def log_marks(low: float, high: float) -> list[float]:
    """Powers of ten, with what is between where there is room.

    Example:
        >>> log_marks(0.5, 60)
        [0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0]
    """
    powers = range(floor(log10(low)), ceil(log10(high)) + 1)
    choices = [
        [round(first * 10.0**power, 12) for power in powers for first in firsts]
        for firsts in ((1, 2, 5), (1,))
    ]
    every = max(1, len(powers) // MAX_MARKS + 1)
    choices.append([10.0**power for power in powers if power % every == 0])
    shown = [[mark for mark in marks if low <= mark <= high] for marks in choices]
    return next((marks for marks in shown if len(marks) <= MAX_MARKS), shown[-1])
