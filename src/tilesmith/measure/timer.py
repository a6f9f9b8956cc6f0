"""Timers: several callables in one process, interleaved, on the host clock or on the device's.

Interleaving (a round runs each once, every other round in reverse) makes drift hit all alike.
Device times come from events behind a flush of the L2 cache: every run reads inputs from memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

import torch

from tilesmith.measure.disturbance import Meter, is_disturbed
from tilesmith.measure.statistics import Summary, summarize

Work = Callable[[], Any]
_MIN_FLUSH_BYTES = 256 * 1024 * 1024
_FLUSH_OVER_L2 = 2
ROUNDS_BETWEEN_LOOKS, HOST_ROUNDS = 19, 7
METERED_TRIES, MAX_TRIES_MS = 5, 100.0
"""Calls of which the fastest tells how many make a sample, where others may have the cores."""


@dataclass(frozen=True)
class Timing:
    """The samples of one callable, in milliseconds, and their summary."""

    samples_ms: tuple[float, ...]
    disturbed: tuple[bool, ...] = ()
    """Of each sample, whether others had the cores; empty where nobody looked."""

    @property
    def summary(self) -> Summary:
        """Median, low and high percentile of the samples."""
        return summarize(self.samples_ms)

    @property
    def median_ms(self) -> float:
        """Median time of one call."""
        return self.summary.median


@dataclass(frozen=True)
class Conditions:
    """What holds around every timed call."""

    prepare: Mapping[str, Work] = field(default_factory=dict[str, Work])
    """What to call before each call of a callable, by its name, outside the time that counts."""
    is_warm: bool = False
    """Whether a device's cache holds what an untimed call right before has left there."""
    time_limit_s: float = inf
    """Rounds that would end later than this are left out, all but the first."""
    precision: float = 0.0
    """Rounds end when the medians of all are so sure, as a share at one sigma."""
    meter: Meter | None = None
    """On the host: what tells of each sample whether it was disturbed."""
    spare_s: float = 0.0
    """With a meter: so long rounds are added while fewer are undisturbed than were asked for."""


PLAIN = Conditions()


def time_on_cpu(
    works: Mapping[str, Work],
    *,
    repeats: int = 15,
    warmup: int = 2,
    min_sample_ms: float = 0.0,
    conditions: Conditions = PLAIN,
) -> dict[str, Timing]:
    """Wall-clock time of each callable on the host, interleaved; caches are left as they are.

    After ``warmup`` untimed calls of each, a round gives one sample per callable, which calls often
    enough to last ``min_sample_ms``, for calls of microseconds.
    """
    start = time.perf_counter()
    timed = {name: _HostWork(work, conditions.prepare.get(name)) for name, work in works.items()}
    for work in timed.values():
        work.measure(warmup)
    tries = METERED_TRIES if conditions.spare_s else 1
    for work in timed.values():
        work.choose_calls(min_sample_ms, tries)
    return _time_on_host(timed, repeats, conditions, _Limit(start, conditions.time_limit_s))


def time_on_device(
    works: Mapping[str, Work],
    *,
    device: torch.device | str = "cuda",
    repeats: int = 50,
    warmup: int = 5,
    conditions: Conditions = PLAIN,
) -> dict[str, Timing]:
    """Device time of callables that enqueue work on the current stream of a GPU, interleaved.

    The L2 cache is cold unless ``conditions`` say otherwise. A replay of ``capture_graph`` is timed
    without the cost of launches between several kernels of one callable.
    """
    place = torch.device(device)
    start = time.perf_counter()
    with torch.cuda.device(place):
        for name, work in works.items():
            prepare = conditions.prepare.get(name, _do_nothing)
            for _ in range(warmup):
                prepare()
                work()
        torch.cuda.synchronize()
        # A buffer whose clearing evicts everything else from the L2 cache.
        l2_bytes = int(torch.cuda.get_device_properties(place).L2_cache_size)
        size = max(_MIN_FLUSH_BYTES, _FLUSH_OVER_L2 * l2_bytes)
        flush = torch.empty(size // 4, dtype=torch.int32, device=place)
        clock = _EventClock(works, conditions, flush)
        return clock.time(repeats, _Limit(start, conditions.time_limit_s))


def capture_graph(work: Work) -> Work:
    """Record the work enqueued by one call into a CUDA graph; returns what replays it.

    The callable must have run before (compilation cannot be captured) and must not synchronise.
    """
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        work()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = work()

    def replay() -> Any:
        graph.replay()
        # Holding the result keeps the memory the graph writes to from being reused.
        return kept

    return replay


class _Limit:
    """Tells, after each round, whether there is time for another."""

    def __init__(self, start: float, seconds: float) -> None:
        self._end = start + seconds
        self._last = time.perf_counter()

    def is_near(self) -> bool:
        """Whether a round as long as the last would end too late."""
        now = time.perf_counter()
        last, self._last = self._last, now
        return now + (now - last) > self._end

    def shorten(self, seconds: float) -> None:
        """End at most so many seconds from now."""
        self._end = min(self._end, time.perf_counter() + seconds)

    def rounds_left(self) -> int:
        """How many rounds as long as the last still fit."""
        now = time.perf_counter()
        left = (self._end - now) / max(now - self._last, 1e-6)
        return int(max(0.0, min(left, 1e9)))


class _HostWork:
    """A callable on the host, with what comes before each call and the calls of one sample."""

    def __init__(self, work: Work, prepare: Work | None) -> None:
        self._work = work
        self._prepare = prepare
        self._calls = 1

    def choose_calls(self, min_sample_ms: float, tries: int) -> None:
        """Call so often that a sample is long enough."""
        taken: list[float] = []
        while min_sample_ms > 0.0 and len(taken) < tries and sum(taken) <= MAX_TRIES_MS:
            taken.append(self.measure(1))
        if taken:
            self._calls = max(1, int(min_sample_ms / max(min(taken), 1e-4)))

    def sample(self) -> float:
        """Milliseconds of one call, the mean of several."""
        return self.measure(self._calls) / self._calls

    def measure(self, count: int) -> float:
        """Milliseconds of so many calls together, without what comes before each."""
        work, prepare, taken = self._work, self._prepare, 0.0
        if prepare is None:
            start = time.perf_counter()
            for _ in range(count):
                work()
            return (time.perf_counter() - start) * 1e3
        for _ in range(count):
            prepare()
            start = time.perf_counter()
            work()
            taken += time.perf_counter() - start
        return taken * 1e3


def _time_on_host(
    works: Mapping[str, _HostWork], repeats: int, conditions: Conditions, limit: _Limit
) -> dict[str, Timing]:
    """So many rounds without a disturbance, or as many rounds as there may be."""
    meter = conditions.meter
    samples: dict[str, list[float]] = {name: [] for name in works}
    disturbed: dict[str, list[bool]] = {name: [] for name in works}
    number = num_quiet = 0
    while num_quiet < repeats:
        for name in _in_turn(list(works), number):
            before = meter() if meter else None
            samples[name].append(works[name].sample())
            if meter and before:
                disturbed[name].append(is_disturbed(before, meter()))
        num_quiet += not any(marks[-1] for marks in disturbed.values() if marks)
        number += 1
        if number == repeats:
            limit.shorten(conditions.spare_s if meter else 0.0)
        is_sure = num_quiet == number >= HOST_ROUNDS and conditions.precision > 0.0
        found = map(summarize, samples.values()) if is_sure else ()
        is_sure = is_sure and all(one.median_error <= conditions.precision for one in found)
        if limit.is_near() or is_sure:
            break
    return {name: Timing(tuple(samples[name]), tuple(disturbed[name])) for name in works}


class _EventClock:
    """Times callables by events of the device."""

    def __init__(
        self, works: Mapping[str, Work], conditions: Conditions, flush: torch.Tensor
    ) -> None:
        self._works, self._conditions, self._flush = works, conditions, flush
        self._pairs: dict[str, list[tuple[torch.cuda.Event, torch.cuda.Event]]] = {
            name: [] for name in works
        }

    def time(self, repeats: int, limit: _Limit) -> dict[str, Timing]:
        """All rounds; the first is waited for, and tells how many more fit into the limit."""
        rounds = [_in_turn(list(self._works), number) for number in range(repeats)]
        self._run(rounds[:1])
        torch.cuda.synchronize()
        rest, precision = rounds[1 : 1 + limit.rounds_left()], self._conditions.precision
        block = ROUNDS_BETWEEN_LOOKS if precision else repeats
        for begin in range(0, len(rest), block):
            self._run(rest[begin : begin + block])
            torch.cuda.synchronize()
            if all(one.summary.median_error <= precision for one in self._timings().values()):
                break
        return self._timings()

    def _timings(self) -> dict[str, Timing]:
        return {
            name: Timing(tuple(start.elapsed_time(end) for start, end in events))
            for name, events in self._pairs.items()
        }

    def _run(self, rounds: Sequence[Sequence[str]]) -> None:
        for names in rounds:
            for name in names:
                self._sample(name)

    def _sample(self, name: str) -> None:
        start = torch.cuda.Event(enable_timing=True)
        end = torch.cuda.Event(enable_timing=True)
        prepare, work = self._conditions.prepare.get(name, _do_nothing), self._works[name]
        prepare()
        # The flush also keeps the device busy while the host enqueues, so launch time stays hidden.
        self._flush.zero_()
        if self._conditions.is_warm:
            work()
            prepare()
        start.record()
        work()
        end.record()
        self._pairs[name].append((start, end))


def _in_turn(names: Sequence[str], number: int) -> list[str]:
    """The order of one round: every name once, every other round in reverse."""
    return list(reversed(names)) if number % 2 else list(names)


def _do_nothing() -> None:
    pass
