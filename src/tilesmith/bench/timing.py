"""Times an implementation, a second copy of it and the baseline in turns: times and rates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from tilesmith.backends.table import BACKENDS
from tilesmith.bench.case import Arguments, Operator
from tilesmith.bench.reference import (
    total_bytes,
)
from tilesmith.frontend.containers import tensors_in
from tilesmith.measure.disturbance import read_meter
from tilesmith.measure.statistics import median, quantile
from tilesmith.measure.timer import (
    Conditions,
    Timing,
    Work,
    capture_graph,
    time_on_cpu,
    time_on_device,
)
from tilesmith.runtime.device import target_of

RATE_CLASSES = {
    torch.float64: "f64",
    torch.float32: "f32",
    torch.bfloat16: "bf16",
    torch.float16: "f16",
    torch.int8: "i8",
    torch.float8_e4m3fn: "f8e4m3",
    torch.float8_e5m2: "f8e5m2",
}

DEVICE_REPEATS, HOST_REPEATS = 100, 15
TIME_LIMIT_S = 10.0
MIN_SAMPLE_MS = 1.0
"""On the host, where clocks and their disturbances are felt below."""
SPARE_S = 2.0
"""On the host, for rounds in the place of disturbed ones."""
MIN_ROUNDS = 5
"""So many undisturbed rounds are enough for a median, or half of them where there are few."""
Timings = Mapping[str, Timing]


@dataclass(frozen=True)
class TimingOptions:
    """How an implementation is timed: where, with warm caches or cold, as a graph or not."""

    device: torch.device
    is_warm: bool = False
    use_graph: bool = True


@dataclass(frozen=True)
class Timed:
    """Samples by name, and in words how the implementation was timed."""

    timings: Mapping[str, Timing]
    timer: str
    notes: list[str] = field(default_factory=list[str])

    def fields(self) -> dict[str, Any]:
        """Those of a row that are times."""
        return {**time_fields(self.timings), "timer": self.timer}


def time_in_turns(
    work: Work, baseline: Work | None, is_right: Callable[[Work], bool], options: TimingOptions
) -> Timed:
    """Time; ``is_right`` says of the replay of a graph whether it still does the work."""
    works = {WORK: work, AGAIN: work}
    if baseline is not None:
        works[BASELINE] = baseline
    if options.device.type == "cpu":
        conditions = Conditions(time_limit_s=TIME_LIMIT_S, meter=read_meter, spare_s=SPARE_S)
        timings = time_on_cpu(
            works, repeats=HOST_REPEATS, min_sample_ms=MIN_SAMPLE_MS, conditions=conditions
        )
        return Timed(timings, "host clock, in turns")
    conditions = Conditions(is_warm=options.is_warm, time_limit_s=TIME_LIMIT_S)
    ready, notes = _ready(works, is_right) if options.use_graph else (works, [])
    cache = "warm" if options.is_warm else "cold"
    kind = "graph" if ready[WORK] is not work else "events"
    timings = time_on_device(
        ready, device=options.device, repeats=DEVICE_REPEATS, conditions=conditions
    )
    return Timed(timings, f"{kind}, {cache}", notes)


def _ready(
    works: Mapping[str, Work], is_right: Callable[[Work], bool]
) -> tuple[dict[str, Work], list[str]]:
    """Graphs of what can be captured; the two copies are always timed alike."""
    notes: list[str] = []
    found = dict(works)
    copies = [_try_capture(works[name]) for name in (WORK, AGAIN)]
    if None in copies:
        notes.append("no graph can be captured of it")
    elif not all(is_right(graph) for graph in copies if graph is not None):
        notes.append("its graph gives other results than its calls")
    else:
        found |= {name: graph for name, graph in zip((WORK, AGAIN), copies) if graph is not None}
    if BASELINE in works:
        captured = _try_capture(works[BASELINE])
        found[BASELINE] = captured or works[BASELINE]
        notes += ["no graph can be captured of the baseline"] if captured is None else []
    return found, notes


def _try_capture(work: Work) -> Work | None:
    try:
        return capture_graph(work)
    except Exception:  # whatever a library raises in a call that must not synchronise
        torch.cuda.synchronize()
        return None


WORK, AGAIN, BASELINE = "work", "again", "baseline"


@dataclass(frozen=True)
class Rounds:
    """The numbers of the rounds that count; if disturbed, they are the best there are."""

    numbers: Sequence[int]
    is_disturbed: bool

    def of(self, timing: Timing) -> list[float]:
        """The samples that count."""
        return [timing.samples_ms[number] for number in self.numbers]


def choose_rounds(timings: Timings, names: Sequence[str]) -> Rounds:
    """Rounds in which nothing disturbed any of these; all of them where there is no such round."""
    total = min(len(timings[name].samples_ms) for name in names)
    marks = [timings[name].disturbed for name in names if timings[name].disturbed]
    quiet = [number for number in range(total) if not any(mark[number] for mark in marks)]
    is_enough = len(quiet) >= min(MIN_ROUNDS, (total + 1) // 2)
    return Rounds(quiet or range(total), not is_enough)


def time_fields(timings: Timings) -> dict[str, Any]:
    """The fields of a row that are times, or say how sure they are."""
    common = choose_rounds(timings, list(timings))
    own = choose_rounds(timings, [WORK, AGAIN]) if common.is_disturbed else common
    found = _own_fields(timings, own)
    if any(timing.disturbed for timing in timings.values()):
        found["disturbed_samples"] = sum(sum(timing.disturbed) for timing in timings.values())
    if BASELINE in timings:
        others = choose_rounds(timings, [BASELINE]) if common.is_disturbed else common
        baseline = others.of(timings[BASELINE])
        found |= {
            "baseline_ms": median(baseline),
            "baseline_spread": half_spread(baseline),
            "speedup": median(baseline) / found["latency_ms"],
            "speedup_spread": half_spread(_ratios(timings, common)),
            "is_speedup_disturbed": common.is_disturbed,
        }
    return found


def half_spread(samples: Sequence[float]) -> float:
    """Half of the middle half of the samples, over the median.

    Example:
        >>> half_spread([1.0, 2.0, 3.0])
        0.25
    """
    return (quantile(samples, 0.75) - quantile(samples, 0.25)) / 2 / median(samples)


def _own_fields(timings: Timings, rounds: Rounds) -> dict[str, Any]:
    first, second = rounds.of(timings[WORK]), rounds.of(timings[AGAIN])
    both = first + second
    return {
        "latency_ms": median(both),
        "spread": half_spread(both),
        "noise_floor": abs(median(first) - median(second)) / median(both),
        "samples": len(both),
        "is_disturbed": rounds.is_disturbed,
    }


def _ratios(timings: Timings, rounds: Rounds) -> list[float]:
    """The baseline's time over the mean of the two copies', round by round."""
    copies = zip(rounds.of(timings[WORK]), rounds.of(timings[AGAIN]))
    means = [(first + second) / 2 for first, second in copies]
    return [slow / mean for slow, mean in zip(rounds.of(timings[BASELINE]), means)]


class AmountOfWork:
    """How much one call does."""

    def __init__(self, operator: Operator, arguments: Arguments, result: Any) -> None:
        self.flops = operator.flops(*arguments) if operator.flops is not None else None
        if operator.num_bytes is not None:
            self.num_bytes = float(operator.num_bytes(*arguments, result))
        else:
            self.num_bytes = float(total_bytes(arguments) + total_bytes(result))
        self._first = next(tensors_in(arguments), None)

    def rates(self, latency_ms: float) -> dict[str, float]:
        """Fields of a row: TFLOP/s, GB/s and the roofline."""
        found = {"gbps": self.num_bytes / latency_ms / 1e6}
        if self.flops is not None:
            found["tflops"] = self.flops / latency_ms / 1e9
        if self._first is not None:
            device = BACKENDS.rules(target_of(self._first.device)).device()
            rate_class = RATE_CLASSES.get(self._first.dtype)
            found["roofline_ms"] = self.num_bytes / device.dram_rate / 1e6
            if self.flops is not None and rate_class is not None:
                compute_ms = self.flops / device.matrix_rate(rate_class) / 1e6
                found["roofline_ms"] = max(found["roofline_ms"], compute_ms)
        return found
