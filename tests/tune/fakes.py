"""Stand-ins for builder, runner, journal and search: deterministic, on a clock of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from random import Random
from typing import Any

from tilesmith.artifacts import Artifact
from tilesmith.lab.workload.binding import Binding
from tilesmith.schedule.config import Config
from tilesmith.store.outcome import Candidate, Outcome, Verdict
from tilesmith.tune.context import EmittedCandidate, NoTimeError, RunnerLostError, TrialFailedError
from tilesmith.tune.jobs import BuildReply, CheckReply, Program
from tilesmith.tune.listener import Generation, Progress, SearchStart
from tilesmith.tune.result import Final, TuneResult


def config(size: int, **more: Any) -> Config:
    return Config(block_sizes=[size], **more)


def emit(candidate: Candidate) -> EmittedCandidate:
    artifact = Artifact("k", "", (), (), ())
    key = str(candidate.config)
    return EmittedCandidate(key, candidate, (Program(key, artifact, Binding(())),))


class Clock:
    """Moves only when something takes time."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class FakeBuilder:
    clock: Clock
    num_jobs: int = 2
    seconds: float = 0.1
    failures: dict[str, BuildReply] = field(default_factory=dict)
    queue: list[EmittedCandidate] = field(default_factory=list)
    most_pending: int = 0

    def submit(self, emitted: EmittedCandidate) -> None:
        self.queue.append(emitted)
        self.most_pending = max(self.most_pending, len(self.queue))

    def collect(self, timeout_s: float) -> Sequence[tuple[EmittedCandidate, BuildReply]]:
        if not timeout_s:
            return []
        done, self.queue = self.queue[: self.num_jobs], self.queue[self.num_jobs :]
        self.clock.now += self.seconds
        good = BuildReply(Verdict.OK, seconds=self.seconds)
        return [(emitted, self.failures.get(emitted.key, good)) for emitted in done]

    @property
    def num_pending(self) -> int:
        return len(self.queue)

    def close(self) -> None:
        self.queue.clear()


@dataclass
class FakeRunner:
    """Times come from ``times`` by key, with noise; ``verdicts`` holds what goes wrong."""

    clock: Clock
    times: Callable[[str], float]
    noise: float = 0.01
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    is_lost: bool = False
    ends_after: int | None = None
    """So many checks, then there is no time to start a runner."""
    known: set[str] = field(default_factory=set)
    num_samples: int = 0
    num_starts: int = 1
    jobs: list[tuple[str, ...]] = field(default_factory=list)
    before: Callable[[str], None] = lambda key: None
    is_busy: Callable[[str], bool] = lambda key: False
    """Whether others have the cores while a key is timed."""
    disturbances: tuple[int, int] = (0, 0)
    rng: Random = field(default_factory=lambda: Random(0))

    def check(self, emitted: EmittedCandidate, timeout_s: float) -> CheckReply:
        if emitted.key in self.known:  # a new best is asked again after it was timed
            return CheckReply(Verdict.OK, "", 1.5 * self.times(emitted.key))
        if self.is_lost:
            raise RunnerLostError("no such device")
        if self.ends_after is not None:
            if not self.ends_after:
                raise NoTimeError("there is no time to start a runner again")
            self.ends_after -= 1
        self.before(emitted.key)
        verdict = self.verdicts.get(emitted.key, Verdict.OK)
        if verdict in (Verdict.CRASHED, Verdict.HUNG):
            self.clock.now += timeout_s if verdict is Verdict.HUNG else 0.01
            self.known.clear()
            self.num_starts += 1
            raise TrialFailedError(verdict, f"the runner {verdict.value}")
        self.clock.now += 0.01
        if verdict is Verdict.OK:
            self.known.add(emitted.key)
        reason = "" if verdict is Verdict.OK else "as told"
        return CheckReply(verdict, reason, 1.5 * self.times(emitted.key))

    def time(
        self, keys: Sequence[str], repeats: int, timeout_s: float
    ) -> tuple[tuple[float, ...], ...]:
        assert set(keys) <= self.known, "a key was timed that the runner does not know"
        self.jobs.append(tuple(keys))
        self.num_samples += repeats * len(keys)
        some, among = self.disturbances
        self.disturbances = (some + self.is_busy(keys[0]), among + 1)
        rows = tuple(tuple(self._sample(key) for _ in range(repeats)) for key in keys)
        self.clock.now += sum(map(sum, rows)) / 1e3
        return rows

    def _sample(self, key: str) -> float:
        return self.times(key) * self.rng.lognormvariate(0.0, self.noise)

    def knows(self, key: str) -> bool:
        return key in self.known

    def forget(self, key: str) -> None:
        self.known.discard(key)

    def close(self) -> None:
        self.known.clear()


@dataclass
class FakeRecords:
    known: dict[Config, Outcome] = field(default_factory=dict)
    appended: list[Outcome] = field(default_factory=list)
    committed: list[TuneResult] = field(default_factory=list)

    def recall(self, config: Config) -> Outcome | None:
        return self.known.get(config)

    @property
    def best_ms(self) -> float:
        return min((outcome.time_ms for outcome in self.known.values()), default=inf)

    def append(self, outcome: Outcome) -> None:
        self.appended.append(outcome)

    def commit(self, result: TuneResult) -> None:
        self.committed.append(result)


@dataclass
class ListSearch:
    """Asks for given candidates, ``per_generation`` at a time, each once."""

    candidates: list[Candidate]
    per_generation: int = 4
    name: str = "ListSearch"
    told: list[Outcome] = field(default_factory=list)
    asked: int = 0

    def ask(self, count: int) -> Sequence[Candidate]:
        start = self.generation * self.per_generation
        end = min(self.asked + count, start + self.per_generation)
        batch = self.candidates[self.asked : end]
        self.asked += len(batch)
        return batch

    def tell(self, outcomes: Sequence[Outcome]) -> None:
        self.told += outcomes

    @property
    def is_finished(self) -> bool:
        return len(self.told) == len(self.candidates)

    @property
    def generation(self) -> int:
        return len(self.told) // self.per_generation


@dataclass
class Spy:
    """A listener that remembers the names of calls and their records."""

    calls: list[tuple[str, object]] = field(default_factory=list)

    def on_start(self, start: SearchStart) -> None:
        self.calls.append(("start", start))

    def on_outcome(self, outcome: Outcome, progress: Progress) -> None:
        self.calls.append(("outcome", (outcome, progress)))

    def on_generation(self, generation: Generation) -> None:
        self.calls.append(("generation", generation))

    def on_finals(self, final: Final) -> None:
        self.calls.append(("finals", final))

    def on_end(self, result: TuneResult) -> None:
        self.calls.append(("end", result))

    def all(self, name: str) -> list:
        return [record for kind, record in self.calls if kind == name]
