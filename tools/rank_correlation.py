"""How well predicted times order random configs: predicted against measured, on this machine.

    python -m tools.rank_correlation --device cuda --count 100 [--jobs 14] [--json rows.jsonl]

Every config is timed in this process; one that fails is counted and named. With several jobs, as
many processes run each config once before, so that it is built by then. Printed is Spearman's rank
correlation for each kernel; the rows go to a file as JSON lines.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch

from examples.attention import attention
from examples.matmul import matmul
from examples.softmax import softmax
from tilesmith.measure.timer import Conditions, time_on_cpu, time_on_device
from tilesmith.numerics.inputs import random_tensor
from tilesmith.schedule.config import Config

Shapes = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Workload:
    """One kernel with the shapes of its arguments, large for GPUs and small for CPUs."""

    name: str
    kernel: Any
    large: Shapes
    small: Shapes

    def arguments(self, device: torch.device) -> tuple[torch.Tensor, ...]:
        """Random tensors: bf16 on GPUs, f32 on CPUs."""
        is_gpu = device.type == "cuda"
        dtype = torch.bfloat16 if is_gpu else torch.float32
        return tuple(
            random_tensor(shape, dtype, seed=seed, device=device)
            for seed, shape in enumerate(self.large if is_gpu else self.small)
        )


WORKLOADS = (
    Workload("matmul", matmul, ((4096, 4096),) * 2, ((512, 512),) * 2),
    Workload("softmax", softmax, ((8192, 8192),), ((2048, 2048),)),
    Workload("attention", attention, ((4, 32, 4096, 128),) * 3, ((1, 4, 512, 64),) * 3),
)


@dataclass(frozen=True)
class Row:
    """One config: what was predicted, and what was measured or why not."""

    kernel: str
    config: dict[str, Any]
    predicted_ms: float
    measured_ms: float | None = None
    is_default: bool = False
    problem: str = ""


def ranks(values: Sequence[float]) -> np.ndarray:
    """Ranks from 1; equal values share the mean of theirs."""
    array = np.asarray(values, dtype=np.float64)
    order = np.argsort(array, kind="stable")
    result = np.empty(len(array))
    result[order] = np.arange(1, len(array) + 1)
    for value in np.unique(array):
        same = array == value
        result[same] = result[same].mean()
    return result


def spearman(left: Sequence[float], right: Sequence[float]) -> float:
    """Correlation of ranks, -1 to 1; NaN where one side does not vary."""
    a, b = ranks(left), ranks(right)
    a, b = a - a.mean(), b - b.mean()
    scale = float(np.sqrt((a * a).sum() * (b * b).sum()))
    return float((a * b).sum()) / scale if scale else float("nan")


def timer_for(device: torch.device) -> Callable[[Callable[[], Any]], float]:
    """How one callable is timed: the median of up to ten runs within a second."""
    conditions = Conditions(time_limit_s=1.0)

    def measure(work: Callable[[], Any]) -> float:
        works = {"work": work}
        if device.type == "cuda":
            timed = time_on_device(works, repeats=10, warmup=2, conditions=conditions)
        else:
            timed = time_on_cpu(works, repeats=7, warmup=1, conditions=conditions)
        return timed["work"].median_ms

    return measure


def draw_configs(spec: Any, count: int, seed: int) -> list[Config]:
    """The default, then different random configs."""
    rng = Random(seed)
    found = {spec.default_config(): None}
    for _ in range(20 * count):
        if len(found) > count:
            break
        found[spec.random_config(rng)] = None
    return list(found)


def measure_workload(
    workload: Workload, device: torch.device, count: int, seed: int, limit_s: float
) -> Iterator[Row]:
    """A row for each config; stops when the time is up."""
    start = time.perf_counter()
    arguments = workload.kernel.normalize_args(*workload.arguments(device))
    bound = workload.kernel.bind(arguments)
    measure = timer_for(device)
    for position, config in enumerate(draw_configs(bound.config_spec, count, seed)):
        if time.perf_counter() - start > limit_s:
            return
        predicted = bound.config_spec.predict(config).total_ms
        row = Row(workload.name, dict(config), predicted, is_default=position == 0)
        try:
            work = partial(bound.compile_config(config), *arguments)
            row = replace(row, measured_ms=measure(work))
        except Exception as error:
            text = str(error).strip().splitlines() or ["no message"]
            row = replace(row, problem=f"{type(error).__name__}: {text[0]}"[:200])
        yield row


def build_ahead(workload: Workload, options: argparse.Namespace) -> None:
    """Have other processes run every config once, which leaves its code in the compiler's cache."""
    command = [sys.executable, "-m", "tools.rank_correlation", f"--kernel={workload.name}"]
    command += [f"--device={options.device}", f"--count={options.count}", f"--seed={options.seed}"]
    shards = [
        subprocess.Popen([*command, f"--shard={number}/{options.jobs}"])
        for number in range(options.jobs)
    ]
    for shard in shards:
        shard.wait()


def run_shard(workload: Workload, options: argparse.Namespace) -> None:
    """Run every n-th config once; what fails will fail again where it is counted."""
    first, step = map(int, options.shard.split("/"))
    arguments = workload.kernel.normalize_args(*workload.arguments(torch.device(options.device)))
    bound = workload.kernel.bind(arguments)
    for config in draw_configs(bound.config_spec, options.count, options.seed)[first::step]:
        with suppress(Exception):
            bound.compile_config(config)(*arguments)


def summarize(name: str, rows: Sequence[Row]) -> dict[str, Any]:
    """The correlation, and how good the config predicted best really is."""
    timed = [row for row in rows if row.measured_ms is not None]
    measured = [row.measured_ms or 0.0 for row in timed]
    predicted = [row.predicted_ms for row in timed]
    summary: dict[str, Any] = {
        "kernel": name,
        "configs": len(rows),
        "failed": len(rows) - len(timed),
    }
    if len(timed) < 3:
        return summary
    best = min(measured)
    chosen = measured[int(np.argmin(predicted))]
    defaults = [row.measured_ms for row in timed if row.is_default]
    return {
        **summary,
        "spearman": spearman(predicted, measured),
        "best_ms": best,
        "predicted_best_ms": chosen,
        "default_ms": defaults[0] if defaults else None,
        "median_ratio": float(np.median(np.asarray(predicted) / np.asarray(measured))),
    }


def print_summary(summary: dict[str, Any]) -> None:
    """One line."""
    head = f"{summary['kernel']:10} {summary['configs']:4} configs, {summary['failed']} failed"
    if "spearman" not in summary:
        print(f"{head}: too few to compare", flush=True)
        return
    default = summary["default_ms"]
    shown = "failed" if default is None else f"{default:.4f}"
    print(
        f"{head}: rank correlation {summary['spearman']:.3f}; best {summary['best_ms']:.4f} ms, "
        f"predicted best {summary['predicted_best_ms']:.4f}, default {shown}; "
        f"predicted / measured {summary['median_ratio']:.2f} (median)",
        flush=True,
    )


def write_lines(path: Path | None, records: Sequence[dict[str, Any]]) -> None:
    """Append JSON lines."""
    if path is not None:
        with path.open("a") as file:
            file.writelines(json.dumps(record) + "\n" for record in records)


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--count", type=int, default=100, help="random configs of each kernel")
    parser.add_argument("--kernel", default="", help="only kernels whose name contains this")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=600.0, help="limit for each kernel")
    parser.add_argument("--jobs", type=int, default=1, help="processes that build ahead")
    parser.add_argument("--shard", default="", help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path, help="append rows and summaries as JSON lines")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line; the exit status is 1 when nothing could be compared."""
    options = parse_arguments(arguments)
    device = torch.device(options.device)
    compared = 0
    for workload in WORKLOADS:
        if options.kernel not in workload.name:
            continue
        if options.shard:
            run_shard(workload, options)
            continue
        if options.jobs > 1:
            build_ahead(workload, options)
        rows: list[Row] = []
        for row in measure_workload(workload, device, options.count, options.seed, options.seconds):
            rows.append(row)
            write_lines(options.json, [asdict(row)])
            if row.problem:
                print(f"  {workload.name}: {row.problem}", flush=True)
        summary = summarize(workload.name, rows)
        compared += "spearman" in summary
        print_summary(summary)
        write_lines(options.json, [summary])
    return 0 if compared or options.shard else 1


if __name__ == "__main__":
    sys.exit(main())
