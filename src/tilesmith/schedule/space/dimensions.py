"""The dimensions of a search space: entries of a Config with more than one choice."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from tilesmith.schedule.space.fragments import Fragment
from tilesmith.schedule.space.keys import KEYS
from tilesmith.schedule.space.slots import Slot


@dataclass(frozen=True)
class Dimension:
    """One entry of a Config: a scalar key (``index`` is None) or a position of a list."""

    key: str
    index: int | None
    label: str
    fragment: Fragment
    default: Any = None

    def __hash__(self) -> int:
        return hash((self.key, self.index))

    def put(self, values: dict[str, Any], value: Any) -> None:
        """Write the entry into a dictionary of full lists."""
        if self.index is None:
            values[self.key] = value
        else:
            values[self.key][self.index] = value

    def get(self, values: Mapping[str, Any]) -> Any:
        """Read the entry; one that was left out is at its default."""
        value = values.get(self.key)
        if value is None:
            return self.default
        return value if self.index is None else value[self.index]

    def __str__(self) -> str:
        name = self.key if self.index is None else f"{self.key}[{self.index}]"
        return f"{name} ({self.label})" if self.index is not None else name


def _dimension(key: str, index: int | None, slot: Slot) -> Dimension | None:
    if slot.search.cardinality < 2:
        return None
    return Dimension(key, index, slot.label, slot.search, slot.default)


def collect_dimensions(
    lists: Mapping[str, tuple[Slot, ...]], scalars: Mapping[str, Slot]
) -> tuple[Dimension, ...]:
    """All dimensions, in the order of the key table; the user's tunables come last."""
    names = [key.name for key in KEYS if key.name in lists or key.name in scalars]
    names += [name for name in scalars if name not in {key.name for key in KEYS}]
    found: list[Dimension | None] = []
    for name in names:
        if name in scalars:
            found.append(_dimension(name, None, scalars[name]))
        else:
            found.extend(_dimension(name, i, slot) for i, slot in enumerate(lists[name]))
    return tuple(dimension for dimension in found if dimension is not None)


def sample_values(dimensions: Iterable[Dimension], rng: Random) -> dict[Dimension, Any]:
    """A random value for each dimension."""
    return {dimension: dimension.fragment.random(rng) for dimension in dimensions}
