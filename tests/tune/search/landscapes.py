"""Made-up times of Configs of real kernels: smooth enough to climb, with traps, noise, failures.

No device model of the package is used: the formulas are independent of what searches assume.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import exp, inf, log2
from random import Random
from zlib import crc32

from tests.schedule import programs
from tests.specs import config_spec
from tilesmith.schedule.config import Config
from tilesmith.schedule.spec import ConfigSpec
from tilesmith.store.outcome import Candidate, Outcome, Verdict
from tilesmith.targets import parse_target
from tilesmith.tune.search.candidate_pool import Search, SearchSpace


def spec_of(name: str, target: str = "cuda:90") -> ConfigSpec:
    return config_spec(programs.ALL[name](), parse_target(target))


def matmul_time(config: Config) -> float:
    """Milliseconds: a best tile, an interaction of warps with tiles, small effects of the rest."""
    m, n, k = config.block_sizes
    time = 1.0
    time *= 1 + 0.10 * (log2(m) - 7) ** 2 + 0.07 * (log2(n) - 8) ** 2 + 0.05 * (log2(k) - 6) ** 2
    time *= 1 + 0.06 * abs(log2(config.num_warps) - log2(max(m * n // 4096, 1)))
    time *= 1 + 0.05 * abs(config.num_stages - 4)
    time *= {"flat": 1.05, "xyz": 1.2, "persistent_blocked": 1.0}.get(config.pid_type, 1.02)
    time *= 1 + 0.04 * config.indexing[:2].count("pointer")
    time *= 1 + 0.01 * abs(log2(config.l2_groupings[0]) - 3)
    return time * (1 + 0.01 * config.load_eviction_policies.count("first"))


def softmax_time(config: Config) -> float:
    """Milliseconds: rows in one piece are fast with enough warps, chunks have their own optimum."""
    rows, chunk = config.block_sizes[0], config.reduction_loops[0]
    time = 0.2 * (1 + 0.15 * log2(rows))
    if chunk is None:
        time *= 1 + 0.2 * abs(log2(config.num_warps) - 3)
    else:
        time *= 1.3 + 0.1 * abs(log2(chunk) - 10) + 0.05 * abs(log2(config.num_warps) - 2)
    time *= 1 + 0.03 * (config.num_stages - 1)
    time *= 1.06 if config.pid_type == "flat" else 1.0
    return time * (1 + 0.04 * config.indexing.count("tensor_descriptor"))


TIMES: dict[str, Callable[[Config], float]] = {"matmul": matmul_time, "softmax": softmax_time}


def _chance(config: Config, salt: str) -> float:
    """A number from 0 to 1 that belongs to the Config, whoever asks and whenever."""
    return crc32(f"{salt} {config}".encode()) / 2**32


@dataclass
class Landscape:
    """What measuring gives: the formula with noise, and failures of one kind or another."""

    time_ms: Callable[[Config], float]
    noise: float = 0.01
    failures: float = 0.2

    def fails(self, config: Config) -> bool:
        return _chance(config, "fails") < self.failures

    def true_ms(self, config: Config) -> float:
        return inf if self.fails(config) else self.time_ms(config)

    def measure(self, candidate: Candidate) -> Outcome:
        config = candidate.config
        if self.fails(config):
            kinds = (Verdict.BUILD_ERROR, Verdict.WRONG, Verdict.CRASHED, Verdict.OUT_OF_RESOURCES)
            kind = kinds[int(_chance(config, "kind") * len(kinds))]
            return Outcome(candidate, kind, "made to fail")
        wobble = Random(crc32(str(config).encode())).gauss(0.0, self.noise)
        time = self.time_ms(config) * exp(wobble)
        return Outcome(candidate, Verdict.OK, "", (time,), time, time, time)


def rough_model(time_ms: Callable[[Config], float]) -> Callable[[Config], float]:
    """A device model that is wrong: a factor too fast, and its differences only partly real."""

    def predict(config: Config) -> float:
        return 0.6 * time_ms(config) ** 0.8 * exp(0.25 * (_chance(config, "model") - 0.5))

    return predict


def best_of_random(spec: ConfigSpec, landscape: Landscape, count: int) -> float:
    """The reference: the best true time among many random Configs."""
    rng = Random(20240)
    return min(landscape.true_ms(spec.random_config(rng)) for _ in range(count))


def space_of(spec: ConfigSpec, predict: Callable[[Config], float] | None = None) -> SearchSpace:
    seeds = [Candidate(config, "seed") for config in spec.seed_configs()]
    return SearchSpace(spec, tuple(seeds), predict=predict)


def run(search: Search, landscape: Landscape, evaluations: int, batch: int = 4) -> list[Outcome]:
    """Ask and tell until so many Configs are measured or the search has ended."""
    told: list[Outcome] = []
    while len(told) < evaluations and not search.is_finished:
        asked = search.ask(min(batch, evaluations - len(told)))
        if not asked:
            break
        outcomes = [landscape.measure(candidate) for candidate in asked]
        search.tell(outcomes)
        told += outcomes
    return told


def best_config_ms(outcomes: list[Outcome], landscape: Landscape) -> float:
    """The true time of the Config that measured best."""
    best = min(outcomes, key=lambda outcome: outcome.time_ms)
    return landscape.true_ms(best.config)
