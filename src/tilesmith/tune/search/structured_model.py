"""Time models of kernels with several structures: each learns from its own Configs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tilesmith.schedule.config import Config
from tilesmith.schedule.space.dimensions import Dimension
from tilesmith.store.outcome import Outcome
from tilesmith.tune.search.candidate_pool import structure_of
from tilesmith.tune.search.encoding import Array
from tilesmith.tune.search.time_model import Forecast, TimeModel


class StructuredTimeModel:
    """One time model for each structure, asked together."""

    def __init__(
        self,
        dimensions: Mapping[str, Sequence[Dimension]],
        predict: Callable[[Config], float | None],
    ) -> None:
        self._models = {name: TimeModel(found, predict) for name, found in dimensions.items()}

    def tell(self, outcome: Outcome) -> None:
        """Learn from one outcome."""
        self._models[structure_of(outcome.config)].tell(outcome)

    def forecast(self, candidates: Sequence[Config], pending: Sequence[Config] = ()) -> Forecast:
        """What to expect of the candidates, in their order."""
        columns: Array = np.zeros((3, len(candidates)))
        for name, model in self._models.items():
            places = [i for i, config in enumerate(candidates) if structure_of(config) == name]
            if places:
                waiting = [config for config in pending if structure_of(config) == name]
                found = model.forecast([candidates[i] for i in places], waiting)
                columns[:, places] = [found.mean, found.spread, found.failure]
        return Forecast(*columns)
