"""The search methods by name, and the default of them, ModelFirstSearch.

That begins with the device model's best guesses. After these seeds, each candidate is the one from
which the corrected model expects most, among the neighbours of the best Configs, jumps from those
and some random ones; a share, which decays, is drawn blindly instead. When all neighbours of the
best are known the search has converged, and goes on from other good places until nothing is left.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from inspect import signature
from itertools import chain, islice
from math import inf, log
from typing import Any

from tilesmith.schedule.config import Config
from tilesmith.store.outcome import Candidate, Outcome
from tilesmith.tune.search import candidate_pool, classic_searches
from tilesmith.tune.search.time_model import StructuredTimeModel

NUM_CENTRES = 3
"""Configs whose neighbours are considered at a time."""
RESERVOIR_SIZE = 24
"""Random Configs, and jumps from the best, that the model chooses from as well."""
NUM_NEW_JUMPS = 4
LOCAL_EVERY = 3
"""Every third step looks only around the best, so that all its neighbours are known in the end."""
FIRST_EXPLORATION = 0.2
LEAST_EXPLORATION = 0.05
EXPLORATION_HALVES_AFTER = 24


class ModelFirstSearch:
    """The default method: measures what a learned correction of the device model predicts."""

    name = "ModelFirstSearch"

    def __init__(
        self,
        space: candidate_pool.SearchSpace,
        seed: int,
        *,
        max_seeds: int = 16,
        generation_size: int = 16,
        max_generations: int | None = None,
    ) -> None:
        self._pool = candidate_pool.CandidatePool(space, seed)
        seeds = self._pool.seeds()
        self._seeds = seeds[:max_seeds]
        self._further_seeds = [candidate.config for candidate in seeds[max_seeds:]]
        self._generation_size = generation_size
        self._max_generations = max_generations
        self.model = StructuredTimeModel(self._pool.dimensions_by_structure, self._pool.predict)
        self._pending: dict[Config, None] = {}
        self._times: dict[Config, float] = {}
        self._num_told = 0
        self._num_steps = 0
        """Candidates after the seeds."""
        self._neighbours: dict[Config, list[Config]] = {}
        self._reservoir: list[Config] = []
        self._jumps: list[Config] = []

    @property
    def generation(self) -> int:
        """0: the seeds; then rounds of ``generation_size``."""
        return 0 if self._seeds else 1 + self._num_steps // self._generation_size

    @property
    def is_finished(self) -> bool:
        """Whether the whole space is known, or all generations are over."""
        if self._max_generations is not None and self.generation > self._max_generations:
            return True
        is_exhausted = self._pool.is_exhausted and not self._seeds and not self._reservoir
        return is_exhausted and not self._pending and not any(map(self._new_near, self._ranked()))

    def tell(self, outcomes: Sequence[Outcome]) -> None:
        """Learn from outcomes, also of Configs that were not asked for."""
        for outcome in outcomes:
            self._pool.note(outcome)
            self._pending.pop(outcome.config, None)
            self._num_told += 1
            self.model.tell(outcome)
            if outcome.time_ms < inf:
                self._times[outcome.config] = outcome.time_ms

    def ask(self, count: int) -> Sequence[Candidate]:
        """Seeds first; then nothing before one of them is told, as there is nothing to go by."""
        asked: list[Candidate] = []
        while len(asked) < count:
            candidate = self._next()
            if candidate is None:
                break
            self._pending[candidate.config] = None
            asked.append(candidate)
        return asked

    def _next(self) -> Candidate | None:
        seed = self._pool.take_seed(self._seeds)
        if seed is not None or self.is_finished or (self._pending and not self._num_told):
            return seed
        generation = self.generation
        config, origin = self._step()
        if config is None:
            return None
        self._num_steps += 1
        return self._pool.take(config, f"generation {generation}, {origin}")

    def _step(self) -> tuple[Config | None, str]:
        decay = 0.5 ** (self._num_steps / EXPLORATION_HALVES_AFTER)
        share = max(LEAST_EXPLORATION, FIRST_EXPLORATION * decay)
        if self._pool.rng.random() < share:
            drawn = self._pool.draw()
            if drawn is not None:
                return drawn, "random"
        if self._num_steps % LOCAL_EVERY == 0:
            chosen = self._choose(self._near(1))
            if chosen is not None:
                return chosen, "near the best"
        near = self._near(NUM_CENTRES)
        chosen = self._choose(list(dict.fromkeys([*near, *self._further()])))
        return chosen, "near the best" if chosen in near else "further away"

    def _ranked(self) -> list[Config]:
        return sorted(self._times, key=lambda config: self._times[config])

    def _new_near(self, config: Config) -> list[Config]:
        if config not in self._neighbours:
            self._neighbours[config] = candidate_pool.neighbours(self._pool, config)
        return list(filter(self._pool.is_new, self._neighbours[config]))

    def _near(self, num_centres: int) -> list[Config]:
        """New neighbours of the best Config, and of the best others that have any."""
        ranked = self._ranked()
        near = (self._new_near(config) for config in ranked[:1])
        others = filter(None, map(self._new_near, ranked[1:]))
        return list(chain(*near, *islice(others, num_centres - 1)))

    def _further(self) -> list[Config]:
        """Seeds not tried, some random Configs, some a few steps away from the best."""
        kept = list(filter(self._pool.is_new, self._reservoir))
        jumps = list(filter(self._pool.is_new, self._jumps))
        while len(kept) < RESERVOIR_SIZE:
            drawn = self._pool.draw()
            if drawn is None or drawn in kept:
                break
            kept.append(drawn)
        centres = self._ranked()[:NUM_CENTRES]
        for _ in range(NUM_NEW_JUMPS if centres else 0):
            landed = candidate_pool.jump(self._pool, self._pool.rng.choice(centres))
            if landed is not None and self._pool.is_new(landed):
                jumps.append(landed)
        self._reservoir, self._jumps = kept, jumps[-RESERVOIR_SIZE:]
        return [*filter(self._pool.is_new, self._further_seeds), *kept, *self._jumps]

    def _choose(self, configs: Sequence[Config]) -> Config | None:
        if len(configs) < 2 or not self._pool.dimensions:
            return next(iter(configs), None)
        forecast = self.model.forecast(configs, list(self._pending))
        best = min(self._times.values(), default=inf)
        scores = forecast.scores(log(best)) if best < inf else -forecast.failure
        return configs[int(scores.argmax())]


@dataclass(frozen=True)
class Method:
    """One entry of the table."""

    make: Callable[..., candidate_pool.Search]
    ignored: tuple[str, ...] = ()
    """Options that are accepted, for the sake of existing scripts, and have no effect."""
    note: str = ""
    """What to tell someone who asked for this method."""

    @property
    def options(self) -> tuple[str, ...]:
        """What it takes: the keywords of its class."""
        parameters = signature(self.make).parameters.values()
        return tuple(item.name for item in parameters if item.kind is item.KEYWORD_ONLY)


METHODS: Mapping[str, Method] = {
    **{
        method.name: Method(method)
        for method in (
            ModelFirstSearch,
            classic_searches.DifferentialEvolutionSearch,
            classic_searches.PatternSearch,
            classic_searches.RandomSearch,
            classic_searches.FiniteSearch,
        )
    },
    **{
        name: Method(
            ModelFirstSearch,
            ("initial_population", "copies", "population_size", "crossover_rate"),
            f"{name} has no counterpart here; ModelFirstSearch learns from measurements, too",
        )
        for name in ("LFBOPatternSearch", "LFBOTreeSearch", "DESurrogateHybrid")
    },
}


def find_method(name: str) -> Method:
    """The entry of that name; ValueError listing the names when there is none."""
    if name not in METHODS:
        raise ValueError(f"unknown search method {name!r}; expected one of {', '.join(METHODS)}")
    return METHODS[name]


def make_method(name: str, options: Mapping[str, Any] | None = None) -> candidate_pool.SearchMethod:
    """The method with its options; ValueError listing those allowed when one is unknown."""
    method = find_method(name)
    given, known = dict(options or {}), method.options
    unknown = [key for key in given if key not in (*known, *method.ignored)]
    if unknown:
        raise ValueError(f"{name} has no option {unknown[0]!r}; allowed: {', '.join(known)}")
    return partial(method.make, **{key: given[key] for key in given if key in known})
