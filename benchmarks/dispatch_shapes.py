"""A few configs for many shapes of products and attention on a GPU, as `tilesmith dispatch` does.

    python -m benchmarks.dispatch_shapes -o folder [--only matmul] [--budget 1.4] [--limit 220]
    python -m benchmarks.dispatch_shapes --every 10 --shrink 16   # on a CPU, to try it

Thirty shapes each: layers of language models and square products, prefill and decode lengths. Some
shapes are searched longer first: what they compile serves the others, whose sizes are arguments.
The report of each kernel and its decision file are written as soon as they are known. What was
measured stays in the cache: a run that was cut off goes on where it was.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

import tilesmith as helion
from examples.attention import attention
from examples.matmul import matmul
from tilesmith.dispatch.tuning import Goal, tune_shapes
from tilesmith.jit.tuner import TuneRequest
from tilesmith.tune.autotune import Autotuner

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
many_products = helion.aot_kernel(matmul.fn, autotune_log_level=30)
many_attentions = helion.aot_kernel(attention.fn, autotune_log_level=30)

ROWS = (16, 128, 512, 2048, 8192)
LAYERS = ((4096, 4096), (4096, 14336), (14336, 4096), (8192, 1024))
"""Inner length and columns of weights."""
SQUARES = (512, 1024, 1536, 2048, 2560, 3072, 4096, 5120, 6144, 8192)
PRODUCTS = [*((m, k, n) for k, n in LAYERS for m in ROWS), *((n, n, n) for n in SQUARES)]
ATTENTIONS = [
    (batch, heads, length, 128)
    for heads in (8, 32)
    for batch, length in (
        (1, 512), (1, 1024), (1, 2048), (1, 4096), (1, 8192), (1, 16384), (4, 256), (4, 512),
        (4, 1024), (4, 2048), (4, 4096), (16, 128), (16, 256), (16, 512), (16, 1024),
    )
]  # fmt: skip
LONGER = ((2, 12, 28), (3, 9, 26))
"""Positions that are searched first, of products and of attention."""
LONGER_FACTOR = 6.0
STARTING_S = 10.0
"""More for the first search, whose processes start and import torch."""
LEAST = 16
"""A side that is shrunk stays as long, unless it was shorter."""


def shrunk(shape: tuple[int, ...], factor: int) -> tuple[int, ...]:
    """A shape with shorter sides; what is 128 stays, so heads keep their depth."""
    return tuple(n if n <= 128 else max(LEAST, n // factor) for n in shape)


def products(shapes: Sequence[tuple[int, ...]]) -> list[tuple[Any, ...]]:
    """Arguments of products."""
    return [(_random(m, k), _random(k, n)) for m, k, n in shapes]


def attentions(shapes: Sequence[tuple[int, ...]]) -> list[tuple[Any, ...]]:
    """Arguments of attention."""
    return [tuple(_random(*shape) for _ in range(3)) for shape in shapes]


def _random(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, device=DEVICE, dtype=torch.bfloat16)


CASES = {
    "matmul": (many_products, products, PRODUCTS, LONGER[0]),
    "attention": (many_attentions, attentions, ATTENTIONS, LONGER[1]),
}


def run(name: str, given: argparse.Namespace, end: float) -> None:
    """Tune one kernel for all its shapes and write what was found."""
    kernel, make, shapes, longer = CASES[name]
    shapes = [shrunk(shape, given.shrink) for shape in shapes[:: given.every]]
    arg_sets = make(shapes)
    started = time.monotonic()
    places = [p for p in longer if p < len(arg_sets)] or [0]
    for number, place in enumerate(places):
        args = kernel.definition.arguments.complete(arg_sets[place])
        seconds = LONGER_FACTOR * given.budget + (STARTING_S if number == 0 else 0.0)
        Autotuner().tune(kernel.bind(args), args, TuneRequest(True, seconds))
    left = (end - time.monotonic()) / (2.4 * len(arg_sets))
    goal = Goal(0.03, 8, max(1.0, min(given.budget, left)), given.pool)
    print(f"{name}: {len(arg_sets)} shapes, {goal.budget_s:.2f} s each twice", flush=True)
    found = tune_shapes(kernel, arg_sets, Autotuner, goal)
    took = time.monotonic() - started
    text = f"{name}, {took:.0f} s\n{found.report()}\n"
    (given.output / f"{name}.txt").write_text(text, encoding="utf-8")
    (given.output / f"{name}_decision.py").write_text(found.file_text(), encoding="utf-8")
    print(text, flush=True)


def main() -> None:
    """Run the kernels one after the other, each in its share of the time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=Path("build/dispatch"))
    parser.add_argument("--only", choices=sorted(CASES), action="append")
    parser.add_argument("--budget", type=float, default=1.4, help="seconds for each search")
    parser.add_argument("--limit", type=float, default=220.0, help="seconds in all")
    parser.add_argument("--pool", type=int, default=24, help="configs measured on all shapes")
    parser.add_argument("--every", type=int, default=1, help="take each so many-th shape only")
    parser.add_argument("--shrink", type=int, default=1, help="divide long sides")
    given = parser.parse_args()
    given.output.mkdir(parents=True, exist_ok=True)
    start, names = time.monotonic(), given.only or list(CASES)
    for number, name in enumerate(names, 1):
        run(name, given, start + given.limit * number / len(names))


if __name__ == "__main__":
    main()
