"""What tuning gains, and how fast: no search, a short one and a long one, against PyTorch.

    python -m benchmarks.gpu_tuning [--only softmax,256] [--budgets 15,120] [--json rows.jsonl]

Each workload runs in a process of its own. First the searches, then all winners, the default
config, eager PyTorch and torch.compile are timed together: interleaved, cold L2, device time.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from math import exp, log
from pathlib import Path
from typing import Any

import torch

import tilesmith as helion
from benchmarks.gpu_defaults import (
    HEADERS,
    ROOT,
    Row,
    Work,
    cells,
    check_all,
    environment,
    parse_rows,
    time_all,
    with_rate,
    with_time,
    write_lines,
)
from benchmarks.table import print_table
from benchmarks.tuning_workloads import TUNING_WORKLOADS
from benchmarks.workloads import Tensors, Workload

DEFAULT = "default"


def tuned_name(budget: float) -> str:
    """How rows call a search of that many seconds."""
    return f"tuned {budget:g} s"


def ours(
    workload: Workload, inputs: Tensors, budget: float, folder: str
) -> tuple[Work, dict[str, Any]]:
    """Our kernel with its default config, or with what a search found."""
    plain = workload.load_kernel()
    # Each search starts from nothing: what a shorter one left would help it.
    settings: dict[str, Any] = {**plain.settings.to_dict(), "cache_dir": folder}
    kernel = helion.kernel(plain.fn, **settings)
    arguments = kernel.normalize_args(*inputs)
    bound = kernel.bind(arguments)
    if budget:
        config = kernel.autotune(arguments, budget=budget)
    else:
        config = bound.config_spec.default_config()
    compiled = bound.compile_config(config)
    return lambda: compiled(*arguments), dict(config)


def compiled_by_torch(workload: Workload, inputs: Tensors, mode: str) -> Work:
    """What torch.compile makes of the eager form."""
    compiled = torch.compile(workload.eager, dynamic=False, mode=mode)
    return lambda: compiled(*inputs)


def measure_workload(workload: Workload, options: argparse.Namespace) -> Iterator[Row]:
    """All rows of one workload."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    inputs = workload.inputs(device, smoke=options.smoke)
    preparations: dict[str, Any] = {}
    for budget in (0.0, *options.budgets):
        name = tuned_name(budget) if budget else DEFAULT
        folder = tempfile.mkdtemp(prefix="tilesmith_tuning_")
        preparations[name] = lambda b=budget, f=folder: ours(workload, inputs, b, f)
    preparations["eager"] = lambda: (lambda: workload.eager(*inputs), {})
    for mode in options.compile:
        preparations[f"compile {mode}"] = lambda m=mode: (
            compiled_by_torch(workload, inputs, m),
            {},
        )
    rows, works, failed = check_all(workload, preparations, inputs)
    yield from failed
    timings, timers = time_all(works, device, options.repeats)
    best = timings.get("eager")
    num_bytes = sum(value.nbytes for value in inputs) + inputs[0].nbytes
    for name, row in rows.items():
        timed = replace(with_time(row, timings[name], best), timer=timers[name])
        yield with_rate(timed, num_bytes, workload.flops(tuple(inputs[0].shape)))


def run_isolated(workload: Workload, arguments: Sequence[str], timeout_s: float) -> list[Row]:
    """Measure one workload in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.gpu_tuning", "--worker", workload.name]
    try:
        done = subprocess.run(
            [*command, *arguments],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
            check=False,
            timeout=timeout_s,
        )
    except subprocess.TimeoutExpired as expired:
        found = expired.stdout or b""
        text = found.decode() if isinstance(found, bytes) else found
        return [*parse_rows(text), Row(workload.name, "worker", problem="no answer in time")]
    rows = parse_rows(done.stdout)
    if done.returncode:
        rows.append(Row(workload.name, "worker", problem=f"exit {done.returncode}"))
    return rows


def geometric_mean(values: Sequence[float]) -> float:
    return exp(sum(map(log, values)) / len(values)) if values else float("nan")


def summarize(rows: Sequence[Row], budgets: Sequence[float]) -> list[str]:
    """How far the default and shorter searches are from the longest one, over all workloads."""
    times = {(row.workload, row.implementation): row.median_ms for row in rows if row.median_ms}
    longest = tuned_name(max(budgets)) if budgets else DEFAULT
    names = [DEFAULT, *map(tuned_name, budgets[:-1]), "eager"]
    lines: list[str] = []
    for name in names:
        both = [w for w, i in times if i == longest and (w, name) in times]
        ratios = [times[w, name] / times[w, longest] for w in both]
        mean = geometric_mean(ratios)
        lines.append(f"{name} / {longest}: geomean {mean:.3f} over {len(ratios)} workloads")
    return lines


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--only", default="", help="parts of workload names, with commas between")
    add("--budgets", default="15,120", help="seconds of each search, with commas between")
    add("--compile", default="default", help="modes of torch.compile, with commas between")
    add("--json", type=Path, help="append rows as JSON lines, each when it is known")
    add("--repeats", type=int, default=100)
    add("--timeout", type=float, default=400.0, help="seconds for one workload")
    add("--smoke", action="store_true", help="tiny sizes, on any device")
    add("--worker", help=argparse.SUPPRESS)
    parsed = parser.parse_args(arguments)
    parsed.budgets = [float(part) for part in parsed.budgets.split(",") if part]
    parsed.compile = [part for part in parsed.compile.split(",") if part]
    return parsed


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the workloads; the exit status is 1 if one of our rows has a problem."""
    options = parse_arguments(arguments)
    if options.worker is not None:
        workload = next(item for item in TUNING_WORKLOADS if item.name == options.worker)
        for row in measure_workload(workload, options):
            print(json.dumps(asdict(row)), flush=True)
        return 0
    if not torch.cuda.is_available() and not options.smoke:
        print("no GPU here; --smoke tries the benchmark itself on the CPU", file=sys.stderr)
        return 2
    passed_on = [f"--repeats={options.repeats}", *["--smoke"] * options.smoke]
    passed_on += [f"--budgets={','.join(f'{b:g}' for b in options.budgets)}"]
    passed_on += [f"--compile={','.join(options.compile)}"]
    write_lines(options.json, [environment()])
    rows: list[Row] = []
    for workload in TUNING_WORKLOADS:
        if any(part in workload.name for part in options.only.split(",")):
            start = time.monotonic()
            new = run_isolated(workload, passed_on, options.timeout)
            write_lines(options.json, [asdict(row) for row in new])
            print(f"{workload.name}: {time.monotonic() - start:.0f} s", flush=True)
            for row in new:
                print(" | ".join(cells(row)), flush=True)
            rows += new
    facts = environment()
    title = f"Tuning on {facts['device']}, torch {facts['torch']}; {facts['method']}"
    print_table(title, HEADERS, [cells(row) for row in rows])
    print("\n".join(summarize(rows, options.budgets)))
    ours_rows = [row for row in rows if row.implementation.startswith(("tuned", DEFAULT, "worker"))]
    return int(any(row.problem for row in ours_rows))


if __name__ == "__main__":
    sys.exit(main())
