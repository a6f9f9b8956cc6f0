"""Predicts times from those measured: the device model's time, times a learned correction.

The logarithm of the correction is a Gaussian process: one effect for each dimension, which carries
over to other Configs, plus an interaction, which only near ones share. Failures are remembered by
nearness alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import erf, exp, log, pi, sqrt
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from tilesmith.schedule.config import KEYS_BY_NAME, Config
from tilesmith.schedule.space.fragments import BooleanFragment, EnumFragment
from tilesmith.schedule.space.slots import Dimension
from tilesmith.store.outcome import Outcome, Verdict
from tilesmith.tune.search.candidate_pool import structure_of

Array = NDArray[np.float64]
EXPECTED_EFFECTS = {
    "block_sizes": 0.25, "reduction_loops": 0.15, "num_warps": 0.15, "num_stages": 0.10,
    "flatten_loops": 0.10, "indexing": 0.08, "pid_type": 0.08,
    "cpu_threads": 0.20, "cpu_unroll": 0.08, "cpu_streaming_stores": 0.10,
}  # fmt: skip
"""Relative change of the time at one step, typically; of keys that change code most."""
SMALL_EFFECT = 0.04
OWN_EFFECT = 0.20
"""Of the user's own tunables."""
EXPECTATION_WEIGHT = 2.0
"""The expectation counts like this many measurements."""
MAX_EFFECT = 1.5
"""A larger change of the logarithm tells no more than "large"."""
REACH = 3.0
"""Steps over which a correction fades to a third."""
SCALE = 0.5 / (1.0 - exp(-1.0 / REACH))
"""Makes one step change a time by the effect, on the root mean square."""
FAILURE_REACH = 1.0
ADDITIVE_SHARE = 0.7
NOISE = 0.02
ROUGH_NOISE = 0.06
"""Of candidates that were dropped after a few samples."""
OFFSET_VARIANCE = 0.05
MAX_POINTS = 96
"""More measurements than this are not learned from: the best, and the latest, are kept."""
TRUST_WEIGHT = 4.0
"""The device model is trusted like this many (well spread) measurements."""


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
        is_enum = isinstance(fragment, EnumFragment)
        # Two one-hot codes differ in two places.
        is_one_hot = is_enum and not isinstance(fragment, BooleanFragment)
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


class Effects:
    """The root mean square change of the logarithmic time per step, for each dimension."""

    def __init__(self, dimensions: Sequence[Dimension]) -> None:
        expected = [
            EXPECTED_EFFECTS.get(item.key, SMALL_EFFECT if item.key in KEYS_BY_NAME else OWN_EFFECT)
            for item in dimensions
        ]
        self._expected = np.array(expected) ** 2
        self.sizes: Array = np.sqrt(self._expected)

    def fit(self, distances: Array, values: Array) -> None:
        """Learn from measured pairs that differ along one dimension only."""
        steps = np.triu((distances > 0).sum(axis=2) == 1, k=1)
        first, second = np.nonzero(steps)
        changed = distances[first, second].argmax(axis=1)
        lengths = distances[first, second, changed]
        change = np.minimum(np.abs(values[first] - values[second]), MAX_EFFECT) ** 2
        count = len(self._expected)
        # Changes add up like the steps of a random walk.
        sums = np.bincount(changed, weights=change / lengths, minlength=count)
        counts = np.bincount(changed, minlength=count)
        prior = EXPECTATION_WEIGHT * self._expected
        self.sizes = np.sqrt((prior + sums) / (EXPECTATION_WEIGHT + counts))


@dataclass(frozen=True)
class Forecast:
    """What is expected of some Configs, as logarithms of milliseconds."""

    mean: Array
    spread: Array
    """Standard deviations."""
    failure: Array
    """Probabilities."""

    def scores(self, best: float) -> Array:
        """Expected improvement on ``best``, weighted with the chance to work."""
        gap = best - self.mean
        ratio = gap / self.spread
        below = np.array([0.5 * (1.0 + erf(z / sqrt(2.0))) for z in ratio])
        density = np.exp(-0.5 * ratio**2) / sqrt(2.0 * pi)
        # Where nothing is expected to improve, the smallest time is still the first choice.
        return (gap * below + self.spread * density) * (1.0 - self.failure) + 1e-9 * gap


def solve(matrix: Array, right: Array) -> Array:
    """Solve a positive definite system row by row.

    A library would do it with all its threads, which then wait for the processors that the builders
    keep busy: hundreds of times as long.
    """
    left, found = matrix.copy(), right.copy()
    size = len(left)
    for i in range(size):
        factors = left[i + 1 :, i] / left[i, i]
        left[i + 1 :, i:] -= factors[:, None] * left[i, i:]
        found[i + 1 :] -= factors[:, None] * found[i]
    for i in reversed(range(size)):
        found[i] /= left[i, i]
        found[:i] -= left[:i, i, None] * found[i]
    return found


class TimeModel:
    """Learns from outcomes, forecasts others."""

    def __init__(
        self, dimensions: Sequence[Dimension], predict: Callable[[Config], float | None]
    ) -> None:
        self.encoder = Encoder(dimensions)
        self.effects = Effects(self.encoder.dimensions)
        self._predict = predict
        self._timed: dict[Config, tuple[float, float]] = {}
        self._failed: dict[Config, None] = {}
        self._trust = 1.0
        self._offset = 0.0
        self._typical = 0.0

    def tell(self, outcome: Outcome) -> None:
        """Learn from one outcome."""
        if 0.0 < outcome.time_ms < float("inf"):
            noise = NOISE if outcome.verdict is Verdict.OK else ROUGH_NOISE
            self._timed[outcome.config] = (log(outcome.time_ms), noise)
        elif outcome.verdict is not Verdict.FILTERED:
            self._failed[outcome.config] = None

    def _points(self) -> list[Config]:
        configs = list(self._timed)
        if len(configs) <= MAX_POINTS:
            return configs
        latest = configs[-MAX_POINTS // 4 :]
        earlier = sorted(configs[: -MAX_POINTS // 4], key=lambda config: self._timed[config][0])
        return earlier[: MAX_POINTS - len(latest)] + latest

    def _predictions(self, configs: Sequence[Config]) -> Array:
        """The device model's logarithms, NaN where it has nothing to say."""
        times = [self._predict(config) or float("nan") for config in configs]
        return np.log(np.array(times, dtype=np.float64))

    def _calibrate(self, predicted: Array, measured: Array) -> None:
        """How far the device model's differences are real ones: 1 all, 0 none."""
        known = np.isfinite(predicted)
        self._trust, self._offset = 0.0, float(measured.mean())
        self._typical = 0.0
        if not known.any():
            return
        self._typical = float(predicted[known].mean())
        x, y = predicted[known] - self._typical, measured[known] - measured[known].mean()
        weight = TRUST_WEIGHT * 0.1
        self._trust = float(np.clip((x @ y + weight) / (x @ x + weight), 0.0, 1.0))

    def _means(self, predicted: Array) -> Array:
        """Expected before any correction."""
        shift = np.where(np.isfinite(predicted), predicted - self._typical, 0.0)
        return self._offset + self._trust * shift

    def _covariance(self, distances: Array) -> Array:
        squares = SCALE * self.effects.sizes**2
        additive = np.exp(-distances / REACH) @ squares
        # Steps along dimensions that hardly matter do not make Configs strangers.
        weighted = distances @ (squares / squares.max())
        interaction = squares.sum() * np.exp(-weighted / REACH)
        return OFFSET_VARIANCE + ADDITIVE_SHARE * additive + (1.0 - ADDITIVE_SHARE) * interaction

    def _failure(self, candidates: Sequence[Config]) -> Array:
        known = [*self._failed, *self._timed]
        rate = (len(self._failed) + 0.5) / (len(known) + 2.0)
        if not self._failed:
            return np.full(len(candidates), rate)
        rows, near = self.encoder.rows(candidates), self.encoder.rows(known)
        weights = np.exp(-self.encoder.distances(rows, near).sum(axis=2) / FAILURE_REACH)
        failed = weights[:, : len(self._failed)].sum(axis=1)
        return (failed + rate) / (weights.sum(axis=1) + 1.0)

    def forecast(self, candidates: Sequence[Config], pending: Sequence[Config] = ()) -> Forecast:
        """What to expect of the candidates, once those pending come out as expected."""
        points = self._points()
        failure = self._failure(candidates)
        if not points:
            spread = np.full(len(candidates), 1.0)
            means = np.nan_to_num(self._predictions(candidates))
            return Forecast(means, spread, failure)
        measured = np.array([self._timed[point][0] for point in points])
        predicted = self._predictions(points)
        self._calibrate(predicted, measured)
        residual = measured - self._means(predicted)
        known = self.encoder.rows([*points, *pending])
        between = self.encoder.distances(known, known)
        count = len(points)
        self.effects.fit(between[:count, :count], residual)
        inner = self._covariance(between)
        cross = self._covariance(self.encoder.distances(self.encoder.rows(candidates), known))
        noise = np.full(len(known), ROUGH_NOISE)
        noise[:count] = [self._timed[point][1] for point in points]
        inner[np.diag_indices_from(inner)] += noise**2
        solved = solve(inner[:count, :count], residual[:, None])[:, 0]
        correction = (cross[:, :count] * solved).sum(axis=1)
        explained = (cross * solve(inner, cross.T).T).sum(axis=1)
        # Of any one correction, before anything is measured.
        prior = OFFSET_VARIANCE + SCALE * float((self.effects.sizes**2).sum())
        variance = np.maximum(prior - explained, 1e-8)
        means = self._means(self._predictions(candidates)) + correction
        return Forecast(means, np.sqrt(variance), failure)


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
