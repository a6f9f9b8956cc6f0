"""Timers: several callables in one process, interleaved, on the host clock or on the device's.

Interleaving (a round runs each once, every other round in reverse) makes drift hit all alike.
Device times come from events behind a flush of the L2 cache: every run reads inputs from memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tilesmith.measure.statistics import Summary, summarize

Work = Callable[[], Any]
_MIN_FLUSH_BYTES = 256 * 1024 * 1024
_FLUSH_OVER_L2 = 2


@dataclass(frozen=True)
class Timing:
    """The samples of one callable, in milliseconds, and their summary."""

    samples_ms: tuple[float, ...]

    @property
    def summary(self) -> Summary:
        """Median and spread."""
        return summarize(self.samples_ms)

    @property
    def median_ms(self) -> float:
        """Median time of one call."""
        return self.summary.median


def time_on_cpu(
    works: Mapping[str, Work],
    *,
    repeats: int = 15,
    warmup: int = 2,
    min_sample_ms: float = 0.0,
) -> dict[str, Timing]:
    """Wall-clock time of each callable on the host, interleaved.

    Args:
        works: callables by name; their results are dropped.
        repeats: rounds, each giving one sample per callable.
        warmup: untimed calls of each first.
        min_sample_ms: one sample calls often enough to last this long, for calls of microseconds.
    """
    for work in works.values():
        _call_often(work, warmup)
    calls = {name: _calls_per_sample(work, min_sample_ms) for name, work in works.items()}
    samples: dict[str, list[float]] = {name: [] for name in works}
    for name in _interleave(list(works), repeats):
        start = time.perf_counter()
        _call_often(works[name], calls[name])
        samples[name].append((time.perf_counter() - start) * 1e3 / calls[name])
    return {name: Timing(tuple(values)) for name, values in samples.items()}


def time_on_device(
    works: Mapping[str, Work],
    *,
    device: torch.device | str = "cuda",
    repeats: int = 50,
    warmup: int = 5,
    use_graph: bool = False,
) -> dict[str, Timing]:
    """Device time of each callable with a cold L2 cache, interleaved; the device must be a GPU.

    Args:
        works: callables by name that enqueue work on the current stream.
        device: the GPU they run on.
        repeats: rounds, each giving one sample per callable.
        warmup: untimed calls of each first.
        use_graph: capture each callable into a graph and time replays, so that the host's launch
            cost between several kernels of one callable is left out.
    """
    place = torch.device(device)
    with torch.cuda.device(place):
        for work in works.values():
            _call_often(work, warmup)
        torch.cuda.synchronize()
        ready = {name: capture_graph(work) if use_graph else work for name, work in works.items()}
        return _time_with_events(ready, repeats, _flush_buffer(place))


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


def _time_with_events(
    works: Mapping[str, Work], repeats: int, flush: torch.Tensor
) -> dict[str, Timing]:
    pairs: dict[str, list[tuple[torch.cuda.Event, torch.cuda.Event]]] = {name: [] for name in works}
    for name in _interleave(list(works), repeats):
        start = torch.cuda.Event(enable_timing=True)
        end = torch.cuda.Event(enable_timing=True)
        # The flush also keeps the device busy while the host enqueues, so launch time stays hidden.
        flush.zero_()
        start.record()
        works[name]()
        end.record()
        pairs[name].append((start, end))
    torch.cuda.synchronize()
    return {
        name: Timing(tuple(start.elapsed_time(end) for start, end in events))
        for name, events in pairs.items()
    }


def _flush_buffer(device: torch.device) -> torch.Tensor:
    """A buffer whose clearing evicts everything else from the L2 cache."""
    l2_bytes = int(torch.cuda.get_device_properties(device).L2_cache_size)
    size = max(_MIN_FLUSH_BYTES, _FLUSH_OVER_L2 * l2_bytes)
    return torch.empty(size // 4, dtype=torch.int32, device=device)


def _interleave(names: Sequence[str], repeats: int) -> list[str]:
    """Every name once per round, every other round in reverse."""
    forward, backward = list(names), list(reversed(names))
    return [name for round_ in range(repeats) for name in (backward if round_ % 2 else forward)]


def _calls_per_sample(work: Work, min_sample_ms: float) -> int:
    if min_sample_ms <= 0.0:
        return 1
    start = time.perf_counter()
    work()
    elapsed_ms = (time.perf_counter() - start) * 1e3
    return max(1, int(min_sample_ms / max(elapsed_ms, 1e-4)))


def _call_often(work: Work, count: int) -> None:
    for _ in range(count):
        work()
