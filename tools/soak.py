"""Mixed calls for as long as asked: is memory flat, is latency flat, does anything leak?

``python -m tools.soak --minutes 60 [--device cuda]``. Threads call kernels with shapes in turn and
check results, kernels are made and dropped, a search runs now and then. Samples are printed as
they are taken; the end compares the last third with the second and exits with 1 if something grew.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import os
import random
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch

from examples.layer_norm import layer_norm_fwd
from examples.matmul import matmul
from examples.softmax import softmax

ROWS = (1, 7, 64, 100, 129, 512)
COLUMNS = (64, 100, 1000, 1024)
CHECK_EVERY = 50
MADE = """import torch
import tilesmith
import tilesmith.language as hl


@tilesmith.kernel
def made(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] * {factor} + {term}
    return out
"""
MOST_GROWTH_MB_PER_HOUR = 64.0
"""Of resident memory. Allocators keep some of what threads of a search used."""
MOST_SLOWER = 1.5
"""Median latency of the last third over that of the second, by eager's own."""


@dataclass
class Counts:
    """What happened since the last sample, and problems so far."""

    ours: list[float] = field(default_factory=list[float])
    eager: list[float] = field(default_factory=list[float])
    made: int = 0
    searches: int = 0
    problems: list[str] = field(default_factory=list[str])


@dataclass(frozen=True)
class Sample:
    """The process at one time; latencies in microseconds."""

    seconds: float
    resident_mb: float
    descriptors: int
    threads: int
    children: int
    calls: int
    ours_us: float
    ours_p99_us: float
    eager_us: float
    eager_p99_us: float

    def line(self) -> str:
        """As it is printed."""
        return (
            f"{self.seconds:7.0f} s  {self.resident_mb:8.1f} MB  {self.descriptors:4} files  "
            f"{self.threads:3} threads  {self.children:2} children  {self.calls:7} calls  "
            f"ours {self.ours_us:7.1f} / {self.ours_p99_us:8.1f} us  "
            f"eager {self.eager_us:7.1f} / {self.eager_p99_us:8.1f} us (median / p99)"
        )


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))


def _num_children() -> int:
    parents = Path("/proc/self/task").glob("*/children")
    return sum(len(path.read_text().split()) for path in parents)


def _percentiles(times: Sequence[float]) -> tuple[float, float]:
    if len(times) < 2:
        return 0.0, 0.0
    return statistics.median(times) * 1e6, statistics.quantiles(times, n=100)[-1] * 1e6


def _sample(begin: float, counts: Counts) -> Sample:
    """Takes the latencies since the last one away."""
    ours, counts.ours = counts.ours, []
    eager, counts.eager = counts.eager, []
    return Sample(
        time.monotonic() - begin,
        _status("VmRSS") / 1024,
        len(os.listdir("/proc/self/fd")),
        _status("Threads"),
        _num_children(),
        len(ours),
        *_percentiles(ours),
        *_percentiles(eager),
    )


def _timed(call: Callable[[], torch.Tensor], times: list[float]) -> torch.Tensor:
    begin = time.perf_counter()
    result = call()
    if result.is_cuda:
        torch.cuda.synchronize()
    times.append(time.perf_counter() - begin)
    return result


def _pairs(x: torch.Tensor) -> list[tuple[Callable[[], torch.Tensor], Callable[..., torch.Tensor]]]:
    """Ours, and eager of the same in the type that it is given."""
    columns = x.size(1)
    weight, y = torch.ones(columns).to(x), torch.ones(columns, 32).to(x) / columns
    norm, shape = torch.nn.functional.layer_norm, [columns]
    return [
        (lambda: softmax(x), lambda x: torch.softmax(x, 1)),
        (
            lambda: layer_norm_fwd(x, weight, weight)[0],
            lambda x: norm(x, shape, weight.to(x), weight.to(x)),
        ),
        (lambda: matmul(x, y), lambda x: x @ y.to(x)),
    ]


def _call(counts: Counts, stop: threading.Event, device: str, seed: int) -> None:
    """Calls kernels with shapes in turn; some results are compared with fp64."""
    draw, number = random.Random(seed), 0
    while not stop.is_set():
        x = torch.randn(draw.choice(ROWS), draw.choice(COLUMNS), device=device)
        ours, eager = draw.choice(_pairs(x))
        result = _timed(ours, counts.ours)
        _timed(partial(eager, x), counts.eager)
        number += 1
        if number % CHECK_EVERY == 0:
            error = (result.double() - eager(x.double())).abs().max().item()
            if not error < 1e-5 * x.size(1):
                counts.problems.append(f"{tuple(x.shape)}: off by {error}")


def _make_and_drop(counts: Counts, stop: threading.Event, device: str, folder: Path) -> None:
    """Kernels of their own text: imported, called with two shapes, forgotten."""
    x = torch.randn(100, device=device)
    while not stop.wait(0.5):
        path = folder / f"made_{counts.made}.py"
        path.write_text(MADE.format(factor=counts.made % 97 + 1, term=counts.made))
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        wanted = x * (counts.made % 97 + 1) + counts.made
        if not torch.allclose(module.made(x), wanted) or module.made(x[:50]).numel() != 50:
            counts.problems.append(f"{path.stem} is wrong")
        del module
        path.unlink()
        counts.made += 1
        gc.collect()


def _search(counts: Counts, stop: threading.Event, device: str) -> None:
    """A short search now and then, of another shape each time."""
    while not stop.wait(30):
        x = torch.randn(64 + counts.searches, 256, device=device)
        softmax.autotune((x,), budget=3, log_level=50, progress_bar=False)
        counts.searches += 1


def judge(samples: Sequence[Sample], problems: Sequence[str]) -> list[str]:
    """What grew from the second third to the last; the first warms up."""
    third = len(samples) // 3
    before, after = samples[third : 2 * third], samples[2 * third :]
    if not before:
        return [*problems, "too few samples to tell: run longer"]

    def middle(part: Sequence[Sample], name: str) -> float:
        return statistics.median(getattr(sample, name) for sample in part)

    hours = (middle(after, "seconds") - middle(before, "seconds")) / 3600
    growth = (middle(after, "resident_mb") - middle(before, "resident_mb")) / hours
    found = list(problems)
    if growth > MOST_GROWTH_MB_PER_HOUR:
        found.append(f"memory grows by {growth:.0f} MB an hour")
    found += [
        f"{name} grow from {middle(before, name)} to {middle(after, name)}"
        for name in ("descriptors", "threads", "children")
        if middle(after, name) > middle(before, name) + 2
    ]
    ours, eager = (middle(after, key) / middle(before, key) for key in ("ours_us", "eager_us"))
    if ours > MOST_SLOWER * max(1.0, eager):
        found.append(f"calls take {ours:.2f} times as long (eager: {eager:.2f})")
    return found


def soak(minutes: float, device: str, num_callers: int) -> list[str]:
    """Run for so long; the problems."""
    counts, stop, begin = Counts(), threading.Event(), time.monotonic()
    interval = min(30.0, minutes * 60 / 12)
    samples: list[Sample] = []
    with tempfile.TemporaryDirectory() as folder:
        threads = [
            *(
                threading.Thread(target=_call, args=(counts, stop, device, seed))
                for seed in range(num_callers)
            ),
            threading.Thread(target=_make_and_drop, args=(counts, stop, device, Path(folder))),
            threading.Thread(target=_search, args=(counts, stop, device)),
        ]
        for thread in threads:
            thread.start()
        while time.monotonic() - begin < minutes * 60:
            time.sleep(interval)
            samples.append(_sample(begin, counts))
            print(samples[-1].line(), flush=True)
            if not all(thread.is_alive() for thread in threads):
                counts.problems.append("a thread ended by an exception")
                break
        stop.set()
        for thread in threads:
            thread.join()
    print(f"{counts.made} kernels made and dropped, {counts.searches} searches")
    return judge(samples, counts.problems)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=2, help="that call kernels")
    options = parser.parse_args()
    problems = soak(options.minutes, options.device, options.threads)
    print("\n".join(problems) or "nothing grew, nothing was wrong")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
