"""Calls on a machine that has other work: how much later than usual do the latest ones return?

``python -m benchmarks.loaded_calls [--busy 0,2,4] [--threads 0,2] [--calls 2000]``. Ours and those
of eager take turns, and take turns in being first, while so many processes beside (``--busy``) or
threads of the same process (``--threads``, which want the interpreter's lock) never rest.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch

from benchmarks.small_calls import plain_add
from examples.layer_norm import layer_norm_fwd
from examples.matmul import matmul
from examples.softmax import softmax

Work = Callable[[], object]
Pair = tuple[Work, Work]
Times = tuple[list[float], list[float]]
WARM_UP = 50
QUANTILES = (0.5, 0.99, 0.999)
BUSY = "while True: pass"


def make_pairs() -> Mapping[str, Pair]:
    """Ours and eager's: too small to be shared by threads, shared by them, and a product."""
    small, x = torch.randn(1024), torch.randn(512, 1024)
    weight, y = torch.ones(1024), torch.randn(1024, 32)
    norm = torch.nn.functional.layer_norm
    return {
        "add 1024": (lambda: plain_add(small, small), lambda: torch.add(small, small)),
        "softmax 512x1024": (lambda: softmax(x), lambda: torch.softmax(x, 1)),
        "layer_norm 512x1024": (
            lambda: layer_norm_fwd(x, weight, weight),
            lambda: norm(x, [1024], weight, weight),
        ),
        "matmul 512x1024x32": (lambda: matmul(x, y), lambda: x @ y),
    }


@contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """So many beside this one that never rest."""
    started = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(count)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


@contextmanager
def busy_threads(count: int) -> Iterator[None]:
    """So many in this process that always want the interpreter's lock."""
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            sum(range(1000))

    threads = [threading.Thread(target=work, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def time_pair(pair: Pair, calls: int) -> Times:
    """Seconds of each call of both, in turns."""
    for work in pair:
        for _ in range(WARM_UP):
            work()
    times: Times = ([], [])
    for number in range(calls):
        for position in (0, 1) if number % 2 else (1, 0):
            begin = time.perf_counter()
            pair[position]()
            times[position].append(time.perf_counter() - begin)
    return times


def quantiles_us(times: Sequence[float]) -> list[float]:
    """The middle, and the ends of 99 and 99.9 percent; microseconds."""
    cuts = statistics.quantiles(times, n=1000, method="inclusive")
    return [cuts[round(1000 * share) - 1] * 1e6 for share in QUANTILES]


def show(load: str, name: str, times: Times) -> None:
    """A line of the table."""
    ours, eager = map(quantiles_us, times)
    cells = [f"{a:.1f} / {b:.1f} ({a / b:.2f})" for a, b in zip(ours, eager)]
    print(f"| {load} | {name} | {' | '.join(cells)} |", flush=True)


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--busy", type=_numbers, default=[0, 2, 4])
    parser.add_argument("--threads", type=_numbers, default=[0, 2])
    parser.add_argument("--calls", type=int, default=2000)
    options = parser.parse_args()
    print("| load | | p50, ours / eager (ratio), us | p99 | p99.9 |\n|---|---|---|---|---|")
    for busy in options.busy:
        for threads in options.threads:
            with busy_processes(busy), busy_threads(threads):
                for name, pair in make_pairs().items():
                    load = f"{busy} processes, {threads} threads"
                    show(load, name, time_pair(pair, options.calls))


if __name__ == "__main__":
    main()
