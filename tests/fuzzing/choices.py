"""Where a random program's decisions come from: a generator, a recorded list, or hypothesis.

Every decision is a number below a bound, and 0 is the simplest answer, so that a list of decisions
shrinks to a simpler program whatever is taken out of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Protocol, TypeVar

T = TypeVar("T")


class Choices(Protocol):
    """A source of decisions."""

    def below(self, bound: int) -> int:
        """A number in [0, bound)."""
        ...


class RandomChoices:
    """Decisions of a seeded generator, written down in ``taken``."""

    def __init__(self, seed: str) -> None:
        self._random = Random(seed)
        self.taken: list[int] = []

    def below(self, bound: int) -> int:
        self.taken.append(self._random.randrange(bound))
        return self.taken[-1]


class RecordedChoices:
    """Decisions of a list; the simplest ones after its end."""

    def __init__(self, decisions: Iterable[int]) -> None:
        self._left = iter(decisions)
        self.taken: list[int] = []

    def below(self, bound: int) -> int:
        self.taken.append(min(next(self._left, 0), bound - 1))
        return self.taken[-1]


def pick(choices: Choices, options: Sequence[T]) -> T:
    """One of the options; the first is the simplest."""
    return options[choices.below(len(options))]


def chance(choices: Choices, percent: int) -> bool:
    """True in so many of a hundred cases; False is the simplest."""
    return choices.below(100) >= 100 - percent


def minimise(
    decisions: Sequence[int], is_failing: Callable[[list[int]], bool], attempts: int = 400
) -> list[int]:
    """A shorter list of smaller decisions for which ``is_failing`` still holds."""
    best = list(decisions)
    left = attempts

    def accept(candidate: list[int]) -> bool:
        nonlocal best, left
        left -= 1
        if left < 0 or candidate == best or not is_failing(candidate):
            return False
        best = candidate
        return True

    before: list[int] = []
    while before != best and left > 0:
        before = best
        size = max(1, len(best) // 2)
        while size:
            start = 0
            while start < len(best) and left > 0:
                if not accept(best[:start] + best[start + size :]):
                    start += size
            size //= 2
        for place in range(len(best)):
            for smaller in (0, best[place] // 2, best[place] - 1):
                if smaller < best[place] and smaller >= 0:
                    accept([*best[:place], smaller, *best[place + 1 :]])
    return best
