"""Configs as rows of numbers, and how far apart two of them are along each dimension."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from tilesmith.schedule.config import Config
from tilesmith.schedule.space.dimensions import Dimension
from tilesmith.schedule.space.fragments import BooleanFragment, EnumFragment

Array = NDArray[np.float64]


class Encoder:
    """Encodes Configs in normal form. One step along any dimension is a distance of one."""

    def __init__(self, dimensions: Sequence[Dimension]) -> None:
        self.dimensions = tuple(dimensions)
        self._rows: dict[Config, Array] = {}
        widths = [len(self._encode(item, item.default)) for item in self.dimensions]
        self._starts = np.cumsum([0, *widths[:-1]])

    @staticmethod
    def _encode(dimension: Dimension, value: Any) -> list[float]:
        fragment = dimension.fragment
        numbers = fragment.encode(value)
        is_one_hot = isinstance(fragment, EnumFragment) and not isinstance(
            fragment, BooleanFragment
        )
        # Two one-hot codes differ in two places.
        return [number / 2 for number in numbers] if is_one_hot else numbers

    def row(self, config: Config) -> Array:
        """The code of one Config."""
        if config not in self._rows:
            numbers = [self._encode(item, item.get(config)) for item in self.dimensions]
            self._rows[config] = np.array([x for part in numbers for x in part], dtype=np.float64)
        return self._rows[config]

    def rows(self, configs: Sequence[Config]) -> Array:
        """The codes of several Configs, one row each."""
        return np.stack([self.row(config) for config in configs])

    def distances(self, first: Array, second: Array) -> Array:
        """Steps between each two rows along each dimension: [first, second, dimension]."""
        apart = np.abs(first[:, None, :] - second[None, :, :])
        return cast("Array", np.add.reduceat(apart, self._starts, axis=2))
