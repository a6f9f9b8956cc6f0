"""Times an implementation, a second copy of it and the baseline in turns: times and rates.

Also what a call costs the host: ours, Triton's ways to launch the same kernel, and torch.add, for
kernels of 2, 6 and 20 small tensors that write into the first, so nothing is allocated. Each is
called with one shape, and with eight in turn. Batches are interleaved; a GPU is idle before each.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from tilesmith.artifacts import Artifact, load_module, write_module
from tilesmith.backends.table import BACKENDS
from tilesmith.bench.case import Arguments, Operator
from tilesmith.bench.plan import Options
from tilesmith.bench.reference import total_bytes
from tilesmith.bench.row import RATE_CLASSES
from tilesmith.frontend.containers import tensors_in
from tilesmith.jit.kernel import Kernel
from tilesmith.lab.workload.argument_text import default_device
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
from tilesmith.runtime.calls.reader import process_readers
from tilesmith.runtime.device import target_of
from tilesmith.runtime.native.loader import load_artifact

DEVICE_REPEATS, HOST_REPEATS = 100, 15
TIME_LIMIT_S, PRECISION, HOST_PRECISION = 10.0, 0.002, 0.005
"""Rounds end when medians are so sure."""
MIN_SAMPLE_MS, SPARE_S = 1.0, 2.0
"""On the host: clocks are felt below; for rounds in the place of disturbed ones."""
MIN_ROUNDS = 5
"""So many undisturbed rounds are enough for a median, or half of them where there are few."""
Timings = Mapping[str, Timing]


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
    work: Work,
    baseline: Work | None,
    is_right: Callable[[Work], bool],
    device: str,
    options: Options,
) -> Timed:
    """Time; ``is_right`` says of the replay of a graph whether it still does the work."""
    works = {WORK: work, AGAIN: work}
    if baseline is not None:
        works[BASELINE] = baseline
    ready, timer, notes = make_ready(works, is_right, device, options)
    return Timed(time_all(ready, device, options), timer, notes)


def time_all(ready: Mapping[str, Work], device: str, options: Options) -> Mapping[str, Timing]:
    """Samples of all in turns."""
    if device == "cpu":
        conditions = Conditions(
            time_limit_s=TIME_LIMIT_S, precision=HOST_PRECISION, meter=read_meter, spare_s=SPARE_S
        )
        rounds: dict[str, Any] = {"repeats": HOST_REPEATS, "min_sample_ms": MIN_SAMPLE_MS}
        return time_on_cpu(ready, **rounds, conditions=conditions)
    conditions = Conditions({}, options.regime == "warm", TIME_LIMIT_S, PRECISION)
    return time_on_device(ready, device=device, repeats=DEVICE_REPEATS, conditions=conditions)


def make_ready(
    works: Mapping[str, Work], is_right: Callable[[Work], bool], device: str, options: Options
) -> tuple[dict[str, Work], str, list[str]]:
    """Graphs of what can be captured, how it is timed, notes; both copies are timed alike."""
    notes: list[str] = []
    found = dict(works)
    if device == "cpu" or not options.use_graph:
        timer = "host clock, in turns" if device == "cpu" else f"events, {options.regime}"
        return found, timer, notes
    graphs = {name: graph for name, work in works.items() if (graph := _try_capture(work))}
    copies = [graphs.pop(name, None) for name in (WORK, AGAIN)]
    if None in copies:
        notes.append("no graph can be captured of it")
    elif not all(is_right(graph) for graph in copies if graph):
        notes.append("its graph gives other results than its calls")
    else:
        found |= {name: graph for name, graph in zip((WORK, AGAIN), copies) if graph}
    if BASELINE in works and BASELINE not in graphs:
        notes.append("no graph can be captured of the baseline")
    found |= graphs
    kind = "graph" if found[WORK] is not works[WORK] else "events"
    return found, f"{kind}, {options.regime}", notes


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
            dtype = str(self._first.dtype).removeprefix("torch.")
            rate_class = next(iter(RATE_CLASSES.get(dtype, {}).values()), None)
            found["roofline_ms"] = self.num_bytes / device.dram_rate / 1e6
            if self.flops is not None and rate_class is not None:
                compute_ms = self.flops / device.matrix_rate(rate_class) / 1e6
                found["roofline_ms"] = max(found["roofline_ms"], compute_ms)
        return found


COUNTS = (2, 6, 20)
"""Numbers of arguments."""
SAME, IN_TURN = "same shape", "8 shapes in turn"
OURS, DIRECT, RAW = "tilesmith", "compiled kernel, run directly", "Triton, kernel[grid]"
ADD, ADD_OUT = "torch.add", "torch.add(out=)"
BATCH, NUM_SHAPES, WIDTH = 200, 8, 64

Call = Callable[..., Any]
Tensors = tuple[torch.Tensor, ...]

_MODULE = """
import tilesmith.language as hl
from tilesmith.jit.typed import make_kernel as kernel
from tilesmith.schedule.config import Config

@kernel(config=Config(block_sizes=[32, 32]))
def total({names}):
    for tile in hl.tile(a0.size()):
        a0[tile] = {total}
    return a0
"""


@dataclass(frozen=True)
class LaunchCost:
    """Host time of one call."""

    implementation: str
    num_arguments: int
    shapes: str
    us: float
    """Median."""
    spread: float
    """Between the 20th and the 80th percentile, as a share of the median."""


def launch_costs(device: str = "", *, repeats: int = 30) -> list[LaunchCost]:
    """All rows; the device is a GPU if there is one."""
    place = torch.device(device or default_device())
    return [
        cost
        for count in COUNTS
        for shapes in (SAME, IN_TURN)
        for cost in _costs(count, shapes, place, repeats)
    ]


def print_launch_costs(console: Console, costs: Sequence[LaunchCost]) -> None:
    """A table of what was measured."""
    by_place = {(c.implementation, c.num_arguments, c.shapes): c for c in costs}
    table = Table(title="host microseconds of one call", box=SIMPLE_HEAD)
    for name in ("arguments", "shapes", "implementation", "us", "spread", "above run"):
        table.add_column(name, justify="left" if name in ("shapes", "implementation") else "right")
    for cost in costs:
        direct = by_place[(DIRECT, cost.num_arguments, cost.shapes)]
        above = f"{cost.us - direct.us:+.2f}" if cost.implementation == OURS else ""
        table.add_row(
            *(str(cost.num_arguments), cost.shapes, cost.implementation),
            *(f"{cost.us:.2f}", f"{cost.spread:.0%}", above),
        )
    console.print(table)
    console.print(f"Arguments are recognised by {how_arguments_are_read()}.")


def how_arguments_are_read() -> str:
    """What reads the tensors of a call in this process, for people to read."""
    obstacle = process_readers().obstacle
    return f"Python code ({obstacle})" if obstacle else "native code"


def make_kernel(count: int, directory: Path) -> Kernel:
    """A kernel of so many tensors that writes the sum of all others into the first."""
    names = [f"a{position}" for position in range(count)]
    path = directory / f"total_of_{count}.py"
    total = " + ".join(f"{name}[tile]" for name in names[1:])
    path.write_text(_MODULE.format(names=", ".join(names), total=total))
    return load_module(path).total


def make_arguments(count: int, shapes: str, device: torch.device) -> list[Tensors]:
    """Sets of arguments, to be used in turn."""
    rows = [WIDTH] if shapes == SAME else [8 * (number + 1) for number in range(NUM_SHAPES)]
    return [tuple(torch.ones(n, WIDTH, device=device) for _ in range(count)) for n in rows]


def _costs(count: int, shapes: str, device: torch.device, repeats: int) -> Iterator[LaunchCost]:
    sets = make_arguments(count, shapes, device)
    with TemporaryDirectory() as directory:
        calls = _calls(make_kernel(count, Path(directory)), sets, Path(directory))
        works = {name: _batch(calls[name], len(sets)) for name in calls}
        waits = dict.fromkeys(works, torch.cuda.synchronize) if device.type == "cuda" else {}
        conditions = Conditions(prepare=waits)
        timings = time_on_cpu(works, repeats=repeats, warmup=3, conditions=conditions)
    for name, timing in timings.items():
        us = timing.median_ms * 1e3 / BATCH
        yield LaunchCost(name, count, shapes, us, timing.summary.spread)


def _calls(
    kernel: Kernel, sets: Sequence[Tensors], directory: Path
) -> Mapping[str, Sequence[Callable[[], Any]]]:
    """By implementation a call for each set of arguments."""
    artifacts = [kernel.bind(arguments).to_artifact(kernel.configs[0]) for arguments in sets]
    others = [
        DIRECT_CALLS[artifact.backend](artifact, arguments, directory)
        for artifact, arguments in zip(artifacts, sets)
    ]
    return {
        OURS: [_fixed(kernel, *arguments) for arguments in sets],
        **{name: [calls[name] for calls in others] for name in others[0]},
        ADD: [_fixed(torch.add, *arguments[:2]) for arguments in sets],
        ADD_OUT: [_fixed(torch.add, *arguments[:2], out=arguments[0]) for arguments in sets],
    }


def _triton_calls(artifact: Artifact, arguments: Tensors, directory: Path) -> dict[str, Call]:
    """Launches without us: tensors as they are, everything else known beforehand."""
    function = getattr(load_module(write_module(artifact, directory)), artifact.name)
    grid = (*map(int, artifact.grid), 1, 1)[:3]
    compiled = function[grid](*arguments, **artifact.options)
    stream = torch.cuda.current_stream().cuda_stream
    fixed = (*grid, stream, compiled.function, compiled.packed_metadata, None, None, None)
    return {
        DIRECT: _fixed(compiled.run, *fixed, *arguments),
        RAW: lambda: function[grid](*arguments, **artifact.options),
    }


def _native_calls(artifact: Artifact, arguments: Tensors, directory: Path) -> dict[str, Call]:
    entry = load_artifact(artifact, directory)
    packed = struct.pack(f"={len(arguments)}q", *(tensor.data_ptr() for tensor in arguments))
    return {DIRECT: _fixed(entry, packed, torch.get_num_threads())}


def _fixed(call: Call, *arguments: Any, **options: Any) -> Callable[[], Any]:
    return lambda: call(*arguments, **options)


def _batch(calls: Sequence[Callable[[], Any]], count: int) -> Callable[[], None]:
    listed = list(calls) * (BATCH // count)

    def run() -> None:
        for call in listed:
            call()

    return run


DIRECT_CALLS = {"triton": _triton_calls, "cpu": _native_calls}
"""Launches without us, by the backend that made the artifact."""
