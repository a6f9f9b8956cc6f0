"""A few configs for many shapes of products and attention on a GPU, as `tilesmith dispatch` does.

    python -m benchmarks.dispatch_shapes -o folder [--only matmul] [--budget 1.4] [--limit 220]
    python -m benchmarks.dispatch_shapes -o folder --direct      # a list of configs, no search
    python -m benchmarks.dispatch_shapes --every 10 --shrink 16   # on a CPU, to try it

Thirty shapes each: layers of language models and square products, prefill and decode lengths. Some
shapes are searched longer first: what they compile serves the others, whose sizes are arguments.
The report of each kernel and its decision file are written as soon as they are known. What was
measured stays in the cache: a run that was cut off goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.dispatch_direct import DEVICE, KERNELS, Direct, build_all, complete, make_args
from tilesmith.dispatch.cover import geomean_loss
from tilesmith.dispatch.tuning import Goal, MakeTuner, ShapeDispatch, tune_shapes
from tilesmith.jit.tuner import TuneRequest
from tilesmith.schedule.config import Config
from tilesmith.tune.autotune import Autotuner
from tilesmith.tune.listener import History

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
UNSEEN = {
    "matmul": [
        (64, 4096, 4096), (256, 4096, 14336), (1024, 14336, 4096), (4096, 8192, 1024),
        (16, 8192, 8192), (768, 768, 768), (1792, 1792, 1792), (3584, 3584, 3584),
        (7168, 7168, 7168), (128, 5120, 13824),
    ],
    "attention": [
        (2, 8, 512, 128), (2, 32, 1536, 128), (1, 16, 3072, 128), (8, 16, 384, 128),
        (1, 32, 6144, 128), (1, 8, 12288, 128), (32, 32, 128, 128), (2, 32, 768, 128),
        (8, 8, 2048, 128), (1, 64, 256, 128),
    ],
}  # fmt: skip
"""Shapes that the decision was not made from."""
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


CASES = {"matmul": (PRODUCTS, LONGER[0]), "attention": (ATTENTIONS, LONGER[1])}


def search_longer(name: str, arg_sets: list[tuple[Any, ...]], budget: float) -> None:
    """Have the tuner compile what serves all shapes."""
    kernel = KERNELS[name]
    places = [place for place in CASES[name][1] if place < len(arg_sets)] or [0]
    for number, place in enumerate(places):
        args = kernel.definition.arguments.complete(arg_sets[place])
        seconds = LONGER_FACTOR * budget + (STARTING_S if number == 0 else 0.0)
        Autotuner().tune(kernel.bind(args), args, TuneRequest(True, seconds))


def run(
    name: str, given: argparse.Namespace, end: float, built: dict[str, list[Config]]
) -> dict[str, Any]:
    """Tune one kernel for all its shapes and write what was found."""
    torch.manual_seed(0)
    shapes = [shrunk(shape, given.shrink) for shape in CASES[name][0][:: given.every]]
    arg_sets = [make_args(name, shape) for shape in shapes]
    started = time.monotonic()
    make: MakeTuner = Autotuner
    if given.direct:
        make, note = partial(Direct, name, built[name], end), f"{len(built[name])} configs"
    else:
        search_longer(name, arg_sets, given.budget)
        note = "a search for each shape"
    left = (end - time.monotonic()) / (2.4 * len(arg_sets))
    goal = Goal(0.03, 8, max(1.0, min(given.budget, left)), given.pool)
    found = tune_shapes(KERNELS[name], arg_sets, make, goal)
    took = time.monotonic() - started
    text = f"{name}, {note}, {took:.0f} s\n{found.report()}\n"
    (given.output / f"{name}.txt").write_text(text, encoding="utf-8")
    (given.output / f"{name}_decision.py").write_text(found.file_text(), encoding="utf-8")
    unseen = time_unseen(name, found, make, given.shrink) if given.direct else ""
    text += unseen
    (given.output / f"{name}.txt").write_text(text, encoding="utf-8")
    record = {**found.record(), "ms": found.timings.ms, "own_ms": found.timings.own_ms}
    (given.output / f"{name}.json").write_text(json.dumps(record), encoding="utf-8")
    print(text, flush=True)
    return record


def time_unseen(name: str, found: ShapeDispatch, make: MakeTuner, shrink: int) -> str:
    """What the decision gives to other shapes, against the best of all configs in turns."""
    scope: dict[str, Any] = {}
    exec(found.file_text(), scope)
    lines, logs = ["", "  best ms  decided ms    loss   shape that was not sampled"], list[float]()
    for shape in [shrunk(shape, shrink) for shape in UNSEEN[name]]:
        args = complete(name, make_args(name, shape))
        history, bound = History(), KERNELS[name].bind(args)
        keywords = {"configs": list(found.timings.configs)}
        make([history]).tune(bound, args, TuneRequest(True, 1.0, keywords))
        times = {trial.outcome.config: trial.outcome.time_ms for trial in history.timed}
        chosen = bound.config_spec.normalize(Config.from_dict(scope[f"autotune_{name}"](*args)))
        if chosen not in times:
            lines.append(f"   not timed: {shape}")
            continue
        best = min(times.values())
        logs.append(math.log(times[chosen] / best))
        loss = 100 * geomean_loss(logs[-1:])
        lines.append(f"{best:9.4f} {times[chosen]:11.4f} {loss:6.1f} %   {shape}")
    return "\n".join([*lines, f"geometric mean {100 * geomean_loss(logs):.2f} %", ""])


def versions() -> str:
    """What ran this."""
    import triton  # noqa: PLC0415

    device = torch.cuda.get_device_name() if DEVICE == "cuda" else platform.processor()
    return f"{device}, torch {torch.__version__}, triton {triton.__version__}"


def main() -> None:
    """Run the kernels one after the other, each in its share of the time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=Path("build/dispatch"))
    parser.add_argument("--only", choices=sorted(CASES), action="append")
    parser.add_argument("--budget", type=float, default=1.4, help="seconds for each search")
    parser.add_argument("--limit", type=float, default=220.0, help="seconds in all")
    parser.add_argument("--pool", type=int, default=24, help="configs measured on all shapes")
    parser.add_argument("--direct", action="store_true", help="time a list of configs, built first")
    parser.add_argument("--jobs", type=int, default=16, help="processes that build")
    parser.add_argument("--build-limit", type=float, default=100.0, help="seconds for building")
    parser.add_argument("--every", type=int, default=1, help="take each so many-th shape only")
    parser.add_argument("--shrink", type=int, default=1, help="divide long sides")
    given = parser.parse_args()
    given.output.mkdir(parents=True, exist_ok=True)
    start, names = time.monotonic(), given.only or list(CASES)
    built = build_all(names, given.jobs, given.build_limit) if given.direct else {}
    took = time.monotonic() - start
    left = given.limit - took
    records = {
        name: run(name, given, start + took + left * number / len(names), built)
        for number, name in enumerate(names, 1)
    }
    print(f"{versions()}; building {took:.0f} s, in all {time.monotonic() - start:.0f} s")
    for name, record in records.items():
        losses = ", ".join(f"{n}: {100 * x:.2f} %" for n, x in record["losses"].items())
        print(f"{name}: {len(record['shapes'])} shapes, {100 * record['loss']:.2f} %; {losses}")


if __name__ == "__main__":
    main()
