"""Fragments: the values one tunable thing may take, and how a search moves among them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import factorial
from random import Random
from typing import Any, ClassVar, cast

from typing_extensions import override


def is_int(value: object) -> bool:
    """Whether the value is an integer and not a bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_power_of_two(value: object) -> bool:
    """Whether the value is a positive integer power of two."""
    return isinstance(value, int) and is_int(value) and value > 0 and value & (value - 1) == 0


class Fragment(ABC):
    """A set of values with a default. ``default`` is always a member."""

    @property
    @abstractmethod
    def default(self) -> Any:
        """The value taken when nothing is said."""

    @property
    @abstractmethod
    def expects(self) -> str:
        """The set in words, e.g. "a power of two from 1 to 32"."""

    @property
    @abstractmethod
    def cardinality(self) -> int:
        """How many values there are."""

    @abstractmethod
    def contains(self, value: Any) -> bool:
        """Whether the value is a member (of the right type, too)."""

    @abstractmethod
    def random(self, rng: Random) -> Any:
        """A member, uniformly."""

    @abstractmethod
    def neighbours(self, value: Any, radius: int = 1) -> list[Any]:
        """The members near ``value``, without it."""

    @abstractmethod
    def encode(self, value: Any) -> list[float]:
        """The value as numbers for a statistical model; the length does not depend on the value."""

    def validate(self, value: Any) -> str | None:
        """A sentence saying what is wrong with the value, or None."""
        return None if self.contains(value) else f"expected {self.expects}, found {value!r}"

    def mutate(self, value: Any, difference: tuple[Any, Any], rng: Random) -> Any:
        """Differential mutation: move ``value`` in the direction from the second to the first."""
        first, second = difference
        if first == second:
            return rng.choice(self.neighbours(value) or [value])
        return rng.choice([first, second])


@dataclass(frozen=True)
class _RangeFragment(Fragment):
    """Members between two bounds, in steps; ``default`` is the lower one unless given."""

    kind: ClassVar[str]
    is_kind: ClassVar[Callable[[object], bool]]
    low: int
    high: int
    _default: int

    def __init__(self, low: int, high: int, default: int | None = None) -> None:
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)
        object.__setattr__(self, "_default", low if default is None else default)
        for bound in (low, high, self._default):
            if self.validate(bound) is not None:
                raise ValueError(f"{type(self).__name__}: {self.validate(bound)}")

    @abstractmethod
    def _step(self, value: int) -> int:
        """The number of the step at a value, or of the last before it."""

    @abstractmethod
    def _member(self, step: int) -> int: ...

    @override
    def contains(self, value: Any) -> bool:
        return self.is_kind(value) and self.low <= value <= self.high

    @property
    @override
    def expects(self) -> str:
        return f"{self.kind} from {self.low} to {self.high}"

    @property
    @override
    def default(self) -> int:
        return self._default

    @property
    @override
    def cardinality(self) -> int:
        return self._step(self.high) - self._step(self.low) + 1

    @override
    def random(self, rng: Random) -> int:
        return self._member(rng.randint(self._step(self.low), self._step(self.high)))

    @override
    def neighbours(self, value: int, radius: int = 1) -> list[int]:
        first = max(self._step(self.low), self._step(value) - radius)
        last = min(self._step(self.high), self._step(value) + radius)
        return [other for other in map(self._member, range(first, last + 1)) if other != value]

    @override
    def encode(self, value: int) -> list[float]:
        return [float(self._step(value))]

    @override
    def mutate(self, value: int, difference: tuple[Any, Any], rng: Random) -> int:
        first, second = difference
        if first == second:
            return value
        moved = self._step(value) + (1 if first > second else -1)
        return self._member(min(max(moved, self._step(self.low)), self._step(self.high)))


class PowerOfTwoFragment(_RangeFragment):
    """Powers of two from ``low`` to ``high``."""

    kind, is_kind = "a power of two", staticmethod(is_power_of_two)

    @override
    def _step(self, value: int) -> int:
        return value.bit_length() - 1

    @override
    def _member(self, step: int) -> int:
        return 1 << step


class IntegerFragment(_RangeFragment):
    """Integers from ``low`` to ``high``."""

    kind, is_kind = "an integer", staticmethod(is_int)

    @override
    def _step(self, value: int) -> int:
        return value

    @override
    def _member(self, step: int) -> int:
        return step


@dataclass(frozen=True)
class EnumFragment(Fragment):
    """One of a few named values; the first is the default.

    ``search_choices`` are the ones a search tries, where those are fewer.
    """

    choices: tuple[Any, ...]
    search_choices: tuple[Any, ...]

    def __init__(self, choices: Sequence[Any], search_choices: Sequence[Any] | None = None) -> None:
        if not choices:
            raise ValueError("EnumFragment: expected at least one choice")
        object.__setattr__(self, "choices", tuple(choices))
        object.__setattr__(self, "search_choices", tuple(search_choices or choices))
        for value in self.search_choices:
            if not self.contains(value):
                raise ValueError(f"EnumFragment: {self.validate(value)}")

    @property
    @override
    def default(self) -> Any:
        return self.choices[0]

    @property
    @override
    def expects(self) -> str:
        return "one of " + ", ".join(map(repr, self.choices))

    @property
    @override
    def cardinality(self) -> int:
        return len(self.search_choices)

    @override
    def contains(self, value: Any) -> bool:
        # True == 1 in Python, but they are different choices.
        return any(type(value) is type(choice) and value == choice for choice in self.choices)

    @override
    def random(self, rng: Random) -> Any:
        return rng.choice(self.search_choices)

    @override
    def neighbours(self, value: Any, radius: int = 1) -> list[Any]:
        return [other for other in self.search_choices if other != value]

    @override
    def encode(self, value: Any) -> list[float]:
        return [float(value == choice) for choice in self.choices]


class BooleanFragment(EnumFragment):
    """False or True; False unless said otherwise."""

    def __init__(self) -> None:
        super().__init__((False, True))

    @property
    @override
    def expects(self) -> str:
        return "True or False"

    @override
    def encode(self, value: bool) -> list[float]:
        return [float(value)]


@dataclass(frozen=True)
class PermutationFragment(Fragment):
    """Orders of ``length`` things, as lists of positions; the identity is the default."""

    length: int

    @property
    @override
    def default(self) -> list[int]:
        return list(range(self.length))

    @property
    @override
    def expects(self) -> str:
        return f"a permutation of {self.default}"

    @property
    @override
    def cardinality(self) -> int:
        return factorial(self.length)

    @override
    def contains(self, value: Any) -> bool:
        if not isinstance(value, (list, tuple)) or not all(map(is_int, cast("list[Any]", value))):
            return False
        return sorted(cast("list[int]", value)) == self.default

    @override
    def random(self, rng: Random) -> list[int]:
        return rng.sample(self.default, self.length)

    @override
    def neighbours(self, value: Sequence[int], radius: int = 1) -> list[list[int]]:
        found: list[list[int]] = []
        for i, j in combinations(range(self.length), 2):
            swapped = list(value)
            swapped[i], swapped[j] = swapped[j], swapped[i]
            found.append(swapped)
        return found

    @override
    def encode(self, value: Sequence[int]) -> list[float]:
        return [float(position) for position in value]


@dataclass(frozen=True)
class ListOf(Fragment):
    """Lists of ``length`` values of one fragment."""

    inner: Fragment
    length: int

    @property
    @override
    def default(self) -> list[Any]:
        return [self.inner.default] * self.length

    @property
    @override
    def expects(self) -> str:
        return f"a list of {self.length} values, each {self.inner.expects}"

    @property
    @override
    def cardinality(self) -> int:
        return self.inner.cardinality**self.length

    @override
    def contains(self, value: Any) -> bool:
        if not isinstance(value, (list, tuple)):
            return False
        items = cast("Sequence[Any]", value)
        return len(items) == self.length and all(map(self.inner.contains, items))

    @override
    def random(self, rng: Random) -> list[Any]:
        return [self.inner.random(rng) for _ in range(self.length)]

    @override
    def neighbours(self, value: Sequence[Any], radius: int = 1) -> list[list[Any]]:
        return [
            [*value[:i], other, *value[i + 1 :]]
            for i, item in enumerate(value)
            for other in self.inner.neighbours(item, radius)
        ]

    @override
    def encode(self, value: Sequence[Any]) -> list[float]:
        return [number for item in value for number in self.inner.encode(item)]

    @override
    def mutate(self, value: Any, difference: tuple[Any, Any], rng: Random) -> list[Any]:
        pairs = zip(*difference)
        return [self.inner.mutate(item, pair, rng) for item, pair in zip(value, pairs)]


Bounds = tuple[int, int | None]
"""The least and the most that the source allows; None: no limit."""


class BlockSizeFragment(PowerOfTwoFragment):
    """A block size. Larger values than ``high`` are legal (tiles are masked) but not searched.

    Those outside the bounds of ``hl.register_block_size`` are not.
    """

    least: int
    most: int | None

    def __init__(
        self, low: int, high: int, default: int | None = None, *, declared: Bounds = (1, None)
    ) -> None:
        object.__setattr__(self, "least", declared[0])
        object.__setattr__(self, "most", declared[1])
        super().__init__(low, high, default)

    @property
    @override
    def expects(self) -> str:
        return f"a power of two{self._range_text()}"

    @override
    def contains(self, value: Any) -> bool:
        return is_power_of_two(value) and self._is_declared(value)

    def _is_declared(self, value: int) -> bool:
        return self.least <= value and (self.most is None or value <= self.most)

    def _range_text(self) -> str:
        if self.most is None:
            return f", at least {self.least}" if self.least > 1 else ""
        return f" from {self.least} to {self.most}, which the kernel allows"


class NumWarpsFragment(PowerOfTwoFragment):
    """The number of warps of a program."""
