"""Default configs on the GPU against eager PyTorch, torch.compile and copy bandwidth, in one run.

    python -m benchmarks.gpu_defaults [--only softmax] [--json rows.jsonl]

Each workload runs in a process of its own, each implementation is guarded: what fails is a row with
its reason. Times are device times with a cold L2 cache, all implementations interleaved.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.checking import Tensors, describe, run_poisoned
from benchmarks.table import print_table
from benchmarks.workloads import WORKLOADS, Workload
from tilesmith.measure.timer import Timing, Work, capture_graph, time_on_cpu, time_on_device
from tilesmith.numerics.compare import ErrorReport, measure_error

Settings = dict[str, Any]
OURS = "tilesmith"
COPY = "copy"
ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Row:
    """One implementation on one workload; a failed one has ``problem`` and what was known."""

    workload: str
    implementation: str
    median_ms: float | None = None
    spread: float | None = None
    rate: float | None = None
    rate_unit: str = ""
    share: float | None = None
    """Of the copy bandwidth, or of cuBLAS/SDPA where arithmetic is the limit."""
    relative_norm: float | None = None
    max_ulp: float | None = None
    is_accurate: bool | None = None
    config: dict[str, Any] = field(default_factory=dict[str, Any])
    prepared_s: float | None = None
    """Seconds from nothing to the second result: tracing, compiling, loading."""
    timer: str = ""
    problem: str = ""


@dataclass(frozen=True)
class Options:
    """What the command line asked for."""

    smoke: bool
    repeats: int
    skip_compile: bool


def prepare_ours(workload: Workload, inputs: Tensors) -> tuple[Work, Settings]:
    """Our kernel with its default config, and that config."""
    kernel = workload.load_kernel()
    arguments = kernel.normalize_args(*inputs)
    bound = kernel.bind(arguments)
    config = bound.config_spec.default_config()
    compiled = bound.compile_config(config)
    return lambda: compiled(*arguments), dict(config)


def prepare_compiled(workload: Workload, inputs: Tensors) -> tuple[Work, Settings]:
    """What torch.compile makes of the eager form."""
    compiled = torch.compile(workload.eager, dynamic=False)
    return lambda: compiled(*inputs), {}


def prepare_sdpa(backend: SDPBackend, inputs: Tensors) -> tuple[Work, Settings]:
    """PyTorch's attention held to one of its backends."""
    q, k, v = inputs

    def work() -> torch.Tensor:
        with sdpa_kernel(backend):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v)

    return work, {}


def preparations(
    workload: Workload, inputs: Tensors, options: Options
) -> dict[str, Callable[[], tuple[Work, Settings]]]:
    """Implementations by name, each still to be made."""
    wanted: dict[str, Callable[[], tuple[Work, Settings]]] = {
        OURS: lambda: prepare_ours(workload, inputs),
        "eager": lambda: (lambda: workload.eager(*inputs), {}),
    }
    # The compiler leaves attention to the same library call.
    if not options.skip_compile and workload.module != "attention":
        wanted["torch.compile"] = lambda: prepare_compiled(workload, inputs)
    if workload.module == "attention" and inputs[0].is_cuda:
        wanted["sdpa cudnn"] = lambda: prepare_sdpa(SDPBackend.CUDNN_ATTENTION, inputs)
        wanted["sdpa flash"] = lambda: prepare_sdpa(SDPBackend.FLASH_ATTENTION, inputs)
    return wanted


def judge(
    workload: Workload, actual: torch.Tensor, exact: torch.Tensor, inputs: Tensors
) -> ErrorReport:
    """Error against float64."""
    return measure_error(
        actual,
        exact,
        reduction_length=workload.reduction_length(tuple(inputs[0].shape)),
        dtype=workload.result_dtype(actual.dtype, inputs[0].dtype),
        intermediate=[inputs[0].dtype] * workload.roundings,
    )


def check_implementation(
    row: Row,
    prepare: Callable[[], tuple[Work, Settings]],
    accuracy: Callable[[torch.Tensor], ErrorReport],
) -> tuple[Row, Work | None]:
    """Build one implementation, run it, judge it; a failure ends up in the row."""
    start = time.perf_counter()
    try:
        work, config = prepare()
        result = run_poisoned(work)[0]
        prepared_s = time.perf_counter() - start
        report = accuracy(result)
    except Exception as error:
        return replace(row, problem=describe(error)), None
    checked = replace(
        row,
        config=config,
        prepared_s=prepared_s,
        relative_norm=report.relative_norm,
        max_ulp=report.max_ulp,
        is_accurate=report.is_within_budget,
        problem="" if report.is_within_budget else str(report).splitlines()[0],
    )
    return checked, work


def check_all(
    workload: Workload,
    wanted: Mapping[str, Callable[[], tuple[Work, Settings]]],
    inputs: Tensors,
) -> tuple[dict[str, Row], dict[str, Work], list[Row]]:
    """Rows and works of the implementations that run, by name, and rows of those that do not."""
    exact = workload.exact(*inputs)
    rows: dict[str, Row] = {}
    works: dict[str, Work] = {}
    failed: list[Row] = []
    for name, prepare in wanted.items():
        row, work = check_implementation(
            Row(workload.name, name),
            prepare,
            lambda result: judge(workload, result, exact, inputs),
        )
        if work is None:
            failed.append(row)
        else:
            rows[name], works[name] = row, work
    return rows, works, failed


def copy_of_equal_traffic(num_bytes: int, device: torch.device) -> Work:
    """A copy that reads and writes ``num_bytes`` together."""
    source = torch.randint(0, 100, (num_bytes // 2,), dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return lambda: target.copy_(source)


def time_all(
    works: dict[str, Work], device: torch.device, repeats: int
) -> tuple[dict[str, Timing], dict[str, str]]:
    """Interleaved times and, by name, how each was timed."""
    if device.type != "cuda":
        return time_on_cpu(works, repeats=3, warmup=1), dict.fromkeys(works, "host clock")
    ready: dict[str, Work] = {}
    timers: dict[str, str] = {}
    for name, work in works.items():
        ready[name], timers[name] = capture_or_keep(work)
    return time_on_device(ready, device=device, repeats=repeats), timers


def capture_or_keep(work: Work) -> tuple[Work, str]:
    """A graph of the work; what cannot be captured is timed call by call, and launches may show."""
    try:
        return capture_graph(work), "graph"
    except Exception:
        torch.cuda.synchronize()
        return work, "events"


def measure_workload(workload: Workload, options: Options) -> Iterator[Row]:
    """All rows of one workload."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    inputs = workload.inputs(device, smoke=options.smoke)
    rows, works, failed = check_all(workload, preparations(workload, inputs, options), inputs)
    yield from failed
    num_bytes = sum(value.nbytes for value in inputs) + inputs[0].nbytes
    flops = workload.flops(tuple(inputs[0].shape))
    if not flops:
        rows[COPY] = Row(workload.name, COPY)
        works[COPY] = copy_of_equal_traffic(num_bytes, device)
    try:
        timings, timers = time_all(works, device, options.repeats)
    except Exception as error:
        yield from (replace(row, problem=describe(error)) for row in rows.values())
        return
    best = timings[COPY] if not flops else timings.get("eager")
    for name, row in rows.items():
        timed = with_time(row, timings[name], best)
        yield with_rate(replace(timed, timer=timers[name]), num_bytes, flops)


def with_time(row: Row, timing: Timing, best: Timing | None) -> Row:
    """The row with its time and its share of the yardstick."""
    share = best.median_ms / timing.median_ms if best is not None else None
    return replace(row, median_ms=timing.median_ms, spread=timing.summary.spread, share=share)


def with_rate(row: Row, num_bytes: int, flops: int) -> Row:
    """The row with GB/s, or TFLOP/s where arithmetic is the limit."""
    assert row.median_ms is not None
    if flops:
        return replace(row, rate=flops / row.median_ms / 1e9, rate_unit="TFLOP/s")
    return replace(row, rate=num_bytes / row.median_ms / 1e6, rate_unit="GB/s")


def run_worker(name: str, options: Options) -> int:
    """Measure one workload in this process; rows go to standard output as JSON lines."""
    workload = next(item for item in WORKLOADS if item.name == name)
    for row in measure_workload(workload, options):
        print(json.dumps(asdict(row)), flush=True)
    return 0


def run_isolated(workload: Workload, arguments: Sequence[str], timeout_s: float) -> list[Row]:
    """Measure one workload in a process of its own; a crash or a hang becomes a row."""
    command = [sys.executable, "-m", "benchmarks.gpu_defaults", "--worker", workload.name]
    try:
        done = subprocess.run(
            [*command, *arguments],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
        )
    except subprocess.TimeoutExpired as expired:
        text = expired.stdout or b""
        rows = parse_rows(text.decode() if isinstance(text, bytes) else text)
        return [*rows, Row(workload.name, OURS, problem=f"no answer in {timeout_s:.0f} s")]
    rows = parse_rows(done.stdout)
    if done.returncode:
        tail = (done.stderr.strip().splitlines() or ["no message"])[-1]
        rows.append(Row(workload.name, "worker", problem=f"exit {done.returncode}: {tail}"))
        print(done.stderr, file=sys.stderr)
    return rows


def parse_rows(text: str) -> list[Row]:
    """Rows among whatever else a worker printed."""
    return [Row(**json.loads(line)) for line in text.splitlines() if line.startswith("{")]


def environment() -> dict[str, str]:
    """What the figures depend on."""
    on_gpu = torch.cuda.is_available()
    return {
        "device": torch.cuda.get_device_name() if on_gpu else "cpu",
        "torch": torch.__version__,
        "python": platform.python_version(),
        "method": "median device time, cold L2, interleaved" if on_gpu else "host clock",
    }


def short_config(config: dict[str, Any]) -> str:
    """Block sizes, warps, stages and program order; the JSON rows have everything."""
    if not config:
        return ""
    blocks = str(config.get("block_sizes", [])).replace(" ", "")
    short = f"{blocks} w{config.get('num_warps', '?')} s{config.get('num_stages', '?')}"
    return f"{short} {config.get('pid_type', '')}".strip()


def number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def cells(row: Row) -> list[str]:
    """One line of the table."""
    accuracy = {None: "-", True: "ok", False: "BEYOND BUDGET"}[row.is_accurate]
    return [
        row.workload,
        row.implementation,
        number(row.median_ms, ".4f"),
        number(row.spread, ".1%"),
        f"{number(row.rate, '.0f')} {row.rate_unit}".strip(),
        number(row.share, ".1%"),
        number(row.relative_norm, ".2e"),
        number(row.max_ulp, ".3g"),
        accuracy,
        number(row.prepared_s, ".1f"),
        row.timer or "-",
        row.problem or short_config(row.config),
    ]


HEADERS = [
    "workload", "implementation", "ms", "spread", "rate", "of copy/cuBLAS", "rel. norm", "max ulp",
    "accuracy", "ready s", "timer", "config or problem",
]  # fmt: skip


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="workloads whose name contains this")
    parser.add_argument(
        "--json", type=Path, help="append rows as JSON lines, each when it is known"
    )
    parser.add_argument("--repeats", type=int, default=100)
    parser.add_argument("--timeout", type=float, default=150.0, help="seconds for one workload")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, on any device")
    parser.add_argument("--skip-compile", action="store_true", help="leave torch.compile out")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def write_lines(path: Path | None, records: Sequence[dict[str, Any]]) -> None:
    if path is None:
        return
    with path.open("a") as file:
        file.writelines(json.dumps(record) + "\n" for record in records)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the workloads; the exit status is 1 if one of our rows has a problem."""
    parsed = parse_arguments(arguments)
    options = Options(parsed.smoke, parsed.repeats, parsed.skip_compile)
    if parsed.worker is not None:
        return run_worker(parsed.worker, options)
    if not torch.cuda.is_available() and not options.smoke:
        print("no GPU here; --smoke tries the benchmark itself on the CPU", file=sys.stderr)
        return 2
    passed_on = [f"--repeats={options.repeats}"]
    passed_on += ["--smoke"] * options.smoke + ["--skip-compile"] * options.skip_compile
    write_lines(parsed.json, [environment()])
    rows: list[Row] = []
    for workload in WORKLOADS:
        if parsed.only in workload.name:
            new = run_isolated(workload, passed_on, parsed.timeout)
            write_lines(parsed.json, [asdict(row) for row in new])
            for row in new:
                print(" | ".join(cells(row)), flush=True)
            rows += new
    facts = environment()
    title = f"Default configs on {facts['device']}, torch {facts['torch']}; {facts['method']}"
    title += "; tiny sizes, to try the benchmark" * options.smoke
    print_table(title, HEADERS, [cells(row) for row in rows])
    return int(any(row.problem for row in rows if row.implementation in (OURS, "worker")))


if __name__ == "__main__":
    sys.exit(main())
