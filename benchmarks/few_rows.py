"""Reductions of few long rows on a GPU: each form that a kernel has, eager and torch.compile.

    python -m benchmarks.few_rows [--only kl_div] [--rows 8 64] [--parts kl_div]

One process for each kernel and length builds everything, checks it against fp64 and for equal bits
in repeated calls, and then has the device for itself. Times are of replayed graphs with a cold L2
cache, all columns of a row in turns, in us; a star marks the default. ``--parts`` times other parts
of the long rows of a kernel, too, named by part, turn of its loop, and warps.
"""

from __future__ import annotations

import argparse
import fcntl
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

from benchmarks.checking import describe
from benchmarks.gpu_defaults import time_all
from examples.cross_entropy import cross_entropy
from examples.kl_div import kl_div
from examples.softmax import softmax
from examples.sum import sum_rows
from tilesmith.schedule.spec import ConfigSpec

ROWS = (1, 4, 8, 16, 32, 64)
LENGTHS = (4096, 32000, 128256, 1 << 20)
TRIED_ROWS = [8, 64]
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
REPEATED_CALLS = 20
Call = Callable[..., Any]


@dataclass(frozen=True)
class Loss:
    """A kernel, how to make its arguments, and what torch computes."""

    kernel: Any
    inputs: Callable[[int, int], tuple[torch.Tensor, ...]]
    eager: Call


def _random(rows: int, length: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(rows, length, device=DEVICE, dtype=dtype)


def _labelled(rows: int, length: int) -> tuple[torch.Tensor, ...]:
    return _random(rows, length, torch.bfloat16), torch.randint(length, (rows,), device=DEVICE)


def _probabilities(rows: int, length: int) -> tuple[torch.Tensor, ...]:
    return _random(rows, length).log_softmax(-1), _random(rows, length).softmax(-1)


def _wide(x: torch.Tensor) -> torch.Tensor:
    return x if x.dtype is torch.float64 else x.float()


LOSSES = {
    "sum": Loss(sum_rows, lambda m, n: (_random(m, n),), lambda x: x.sum(-1)),
    "softmax": Loss(
        softmax, lambda m, n: (_random(m, n, torch.bfloat16),), lambda x: torch.softmax(x, -1)
    ),
    "cross_entropy": Loss(
        cross_entropy, _labelled, lambda x, labels: functional.cross_entropy(_wide(x), labels)
    ),
    "kl_div": Loss(
        kl_div, _probabilities, lambda x, y: functional.kl_div(x, y, reduction="batchmean")
    ),
}


def _changes(base: Any) -> dict[str, dict[str, Any]]:
    """Other parts, turns of loops that walk them, and numbers of warps, by what they are called."""
    found: dict[str, dict[str, Any]] = {}
    walks = len(base["block_sizes"]) > 2
    for part, turn, warps in product((4096, 8192, 16384, 32768), (2048, 4096), (4, 8, 16)):
        if walks or turn == 2048:
            blocks = [base["block_sizes"][0], *[turn] * walks, part]
            label = f"{part}/{turn}/{warps}" if walks else f"{part}/{warps}"
            found[label] = {"block_sizes": blocks, "num_warps": warps}
    return found


def works_of(loss: Loss, arguments: tuple[Any, ...], *, with_parts: bool) -> dict[str, Call]:
    """What is timed, by name, each still to be built: forms, then other parts."""
    kernel = loss.kernel
    given = kernel.normalize_args(*arguments)
    bound = kernel.bind(given)
    spec = bound.config_spec
    default = spec.default_config()

    def ours(config: Any) -> Call:
        compiled = bound.compile_config(config)
        return lambda: compiled(*given)

    others = {name: form for name, form in spec.forms().items() if name}
    configs = {"rows": ConfigSpec.default_config(spec)}
    for name, form in others.items():
        configs[name] = form.default_config().updated(structure=name)
    named = {f"{name}{'*' * (config == default)}": config for name, config in configs.items()}
    if default not in configs.values():
        named["default*"] = default
    if with_parts:
        base = configs["row_parts" if "row_parts" in others else "exchange"]
        named = {name: base.updated(**change) for name, change in _changes(base).items()}
    return {name: lambda config=config: ours(config) for name, config in named.items()}


def _is_right(found: torch.Tensor, exact: torch.Tensor) -> bool:
    tolerance = 1e-2 if found.dtype is torch.bfloat16 else 1e-4
    scale = exact.abs().max().clamp(min=1e-30)
    return bool(((found.double() - exact).abs().max() / scale) < tolerance)


def _build(loss: Loss, arguments: tuple[Any, ...], *, with_parts: bool) -> dict[str, Call]:
    exact = loss.eager(*(a.double() if a.is_floating_point() else a for a in arguments))
    compiled = torch.compile(loss.eager, dynamic=False)
    made: dict[str, Call] = {}
    makers = works_of(loss, arguments, with_parts=with_parts)
    rivals = {"eager": lambda: loss.eager(*arguments), "compile": lambda: compiled(*arguments)}
    rivals = {} if with_parts else rivals
    for name, make in {**makers, **{n: (lambda c=c: c) for n, c in rivals.items()}}.items():
        try:
            call = make()
            first = call()
            are_equal = all(torch.equal(call(), first) for _ in range(REPEATED_CALLS))
            if not _is_right(first, exact) or (name in makers and not are_equal):
                print(f"    WRONG {name}: {'equal' if are_equal else 'other'} bits", flush=True)
                continue
            made[name] = call
        except Exception as error:
            print(f"    -       {name}: {describe(error)}", flush=True)
    return made


def measure(name: str, length: int, options: argparse.Namespace) -> None:
    """All numbers of rows of one kernel and length."""
    torch.manual_seed(0)
    loss = LOSSES[name]
    made = {
        rows: _build(loss, loss.inputs(rows, length), with_parts=options.is_tried)
        for rows in options.rows
    }
    with Path(options.lock).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        for rows, works in made.items():
            timings, _ = time_all(works, torch.device(DEVICE), options.repeats)
            cells = [f"{label} {timing.median_ms * 1e3:.1f}" for label, timing in timings.items()]
            print(f"    {name} {rows}x{length}: " + " | ".join(cells), flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument("--rows", type=int, nargs="*", default=list(ROWS))
    parser.add_argument("--lengths", type=int, nargs="*", default=list(LENGTHS))
    parser.add_argument("--repeats", type=int, default=25)
    parser.add_argument("--parts", default="", help="a kernel to try other parts of")
    parser.add_argument("--case", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--is-tried", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--lock", default="", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.case:
        measure(options.case[0], int(options.case[1]), options)
        return
    names = [name for name in LOSSES if options.only in name]
    cases = [(name, length, options.rows) for name in names for length in options.lengths]
    tried = [(options.parts, n, TRIED_ROWS) for n in LENGTHS[-2:] if options.parts]
    with tempfile.NamedTemporaryFile() as lock:
        started: list[subprocess.Popen[str]] = []
        for name, length, rows in (*cases, *tried):
            command = [
                "env", "TORCHINDUCTOR_COMPILE_THREADS=1", sys.executable, "-W", "ignore", "-m",
                "benchmarks.few_rows", f"--repeats={options.repeats}", f"--lock={lock.name}",
                "--case", name, str(length), "--rows", *map(str, rows),
                *(["--is-tried"] * ((name, length, rows) in tried)),
            ]  # fmt: skip
            started.append(subprocess.Popen(command, text=True))
        for process in started:
            process.wait()


if __name__ == "__main__":
    main()
