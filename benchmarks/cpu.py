"""Kernels on the CPU against eager PyTorch and torch.compile, judged against the better of the two.

    python -m benchmarks.cpu [--only softmax] [--quick] [--json rows.jsonl]

Implementations are interleaved in one process, medians of rounds, order reversed every other round;
rounds in which others used the machine are redone. Workers measure, this process only watches: a
kernel that crashes is a row that says so.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.cpu_compile_time import FIRST
from benchmarks.cpu_row import HEADERS, SMALL_CALLS, Row, SmallCalls, noise, number, summary
from benchmarks.cpu_workloads import WORKLOADS
from benchmarks.onednn_probe import find_environment
from benchmarks.table import print_table
from benchmarks.watched_process import WatchedProcess
from tilesmith.measure.statistics import median

COMPILE_TIME = "compile time"
COLD_GOAL_MS, WARM_GOAL_MS = 60.0, 5.0
STAGES = ("trace_ms", "emit_ms", "machine_ms", "load_ms")
STAGE_HEADERS = [
    "kernel", "trace, passes", "schedule, LLVM IR", "machine code", "", "from disk", "", "load",
    "lines of IR", "problem",
]  # fmt: skip
# Freed blocks stay with the process: else page faults on fresh outputs drown what is compared.
WARM_MEMORY = "glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=17179869184"
FEATURES = ("sse4_2", "avx2", "fma", "avx512f", "avx512_bf16", "avx512_fp16", "amx_bf16", "sve")
CPU_INFO = Path("/proc/cpuinfo")

Environment = Mapping[str, str]
Message = dict[str, Any]


def worker_environment(*, stock_allocator: bool) -> tuple[dict[str, str], list[str]]:
    """Variables of the measuring processes, and what a reader should know of them."""
    environment, change = find_environment(os.environ)  # noqa: TID251 (passed on, not read)
    remarks = [change] if change else []
    if not stock_allocator:
        environment["GLIBC_TUNABLES"] = WARM_MEMORY
        remarks.append("malloc keeps freed memory (it does not with --stock-allocator)")
    return environment, remarks


def run_jobs(
    names: Sequence[str], flags: Sequence[str], environment: Environment, timeout_s: float
) -> Iterator[Message]:
    """Answers of the worker; where it dies, a failed answer, and another worker for the rest."""
    remaining = list(names)
    while remaining:
        command = ["benchmarks.cpu_worker", *flags, "--", *remaining]
        process = WatchedProcess(command, environment, timeout_s)
        for message in process.messages():
            if message.get("job") in remaining:
                remaining.remove(message["job"])
            yield message
        if remaining:
            # Jobs run in order: the first without an answer was the one at work.
            yield {"job": remaining.pop(0), "answer": {"problem": process.cause_of_death()}}


def row_of(message: Message) -> Row:
    """The row in an answer, which may be no more than a cause of death."""
    workload = next(item for item in WORKLOADS if item.name == message["job"])
    known = {"name": workload.name, "size": workload.size, "goal": workload.goal}
    return Row(**(known | message["answer"]))


def compile_times(environment: Environment, timeout_s: float, repeats: int) -> list[Message]:
    """Stages by kernel, medians over pairs of processes: one with an empty cache, one with it."""
    runs: dict[str, list[list[Message]]] = {"cold": [], "warm": []}
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            variables = {**environment, "TILESMITH_CACHE_DIR": folder}
            for kind, found in runs.items():
                process = WatchedProcess(["benchmarks.cpu_compile_time"], variables, timeout_s)
                found.append(list(process.messages()))
                if not found[-1]:
                    found[-1] = [{"kernel": kind, "problem": process.cause_of_death()}]
    return [merge_stages(list(of_kernel)) for of_kernel in zip(*runs["cold"], *runs["warm"])]


def merge_stages(runs: Sequence[Message]) -> Message:
    """One line from the runs of one kernel, the first half of them cold."""
    problems = [run["problem"] for run in runs if run.get("problem")]
    if problems:
        return {"kernel": runs[0]["kernel"], "problem": problems[0]}
    half = len(runs) // 2
    merged: Message = {name: median([run[name] for run in runs]) for name in STAGES}
    return merged | {
        "kernel": runs[0]["kernel"],
        "machine_ms": median([run["machine_ms"] for run in runs[:half]]),
        "disk_ms": median([run["machine_ms"] for run in runs[half:]]),
        "llvm_lines": runs[0]["llvm_lines"],
    }


def stage_cells(stages: Message) -> list[str]:
    """One line of the table of compile times."""

    def cell(name: str) -> str:
        return number(stages.get(name), ".1f")

    def verdict(name: str, goal: float) -> str:
        if name not in stages or stages["kernel"] == FIRST:
            return "-"
        return "ok" if stages[name] < goal else "miss"

    return [
        stages["kernel"],
        cell("trace_ms"),
        cell("emit_ms"),
        cell("machine_ms"),
        verdict("machine_ms", COLD_GOAL_MS),
        cell("disk_ms"),
        verdict("disk_ms", WARM_GOAL_MS),
        cell("load_ms"),
        str(stages.get("llvm_lines", "-")),
        stages.get("problem", ""),
    ]


def describe_cpu() -> str:
    """Model, cores and the features that matter here."""
    try:
        lines = CPU_INFO.read_text().splitlines()
    except OSError:
        return f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores"
    facts = dict(reversed([line.split(":", 1) for line in lines if ":" in line]))
    facts = {name.strip(): value.strip() for name, value in facts.items()}
    flags = (facts.get("flags") or facts.get("Features") or "").split()
    found = " ".join(feature for feature in FEATURES if feature in flags)
    model = facts.get("model name", platform.machine())
    return f"{model}, {os.cpu_count()} cores ({found})"


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--only",
        default="",
        help=f"names with this in them; also '{SMALL_CALLS}', '{COMPILE_TIME}'",
    )
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds")
    parser.add_argument("--json", type=Path, help="append everything as JSON lines")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds for one workload")
    parser.add_argument(
        "--stock-allocator", action="store_true", help="fresh outputs fault their pages in"
    )
    return parser.parse_args(arguments)


def measure_rows(
    parsed: argparse.Namespace, environment: Environment
) -> tuple[list[Row], SmallCalls | None, Message]:
    """Run the wanted workloads and small calls, telling of each as it comes."""
    names = [item.name for item in WORKLOADS] + [SMALL_CALLS]
    rounds, sample_ms = (5, 20) if parsed.quick else (11, 60)
    flags = [f"--threads={parsed.threads}", f"--rounds={rounds}", f"--min-sample-ms={sample_ms}"]
    flags += ["--no-compile"] * parsed.no_compile
    rows: list[Row] = []
    small: SmallCalls | None = None
    facts: Message = {}
    wanted = [name for name in names if parsed.only in name]
    for message in run_jobs(wanted, flags, environment, parsed.timeout):
        if "job" not in message:
            facts = message
        elif message["job"] == SMALL_CALLS:
            small = SmallCalls(**message["answer"])
        else:
            rows.append(row_of(message))
            print(f"{' | '.join(rows[-1].cells())} [{rows[-1].took_s:.0f} s]", flush=True)
    return rows, small, facts


def write_json(path: Path | None, records: Sequence[Message]) -> None:
    if path is None:
        return
    with path.open("a") as file:
        file.writelines(json.dumps(record) + "\n" for record in records)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; the exit status is 1 if one of our rows failed."""
    parsed = parse_arguments(arguments)
    environment, remarks = worker_environment(stock_allocator=parsed.stock_allocator)
    rows, small, facts = measure_rows(parsed, environment)
    stages: list[Message] = []
    if parsed.only in COMPILE_TIME:
        repeats = 1 if parsed.quick else 3
        stages = compile_times(environment, parsed.timeout, repeats)
    title = (
        f"{describe_cpu()}; torch {facts.get('torch', '?')}, {facts.get('threads', '?')} threads"
    )
    if rows:
        print_table("CPU kernels", HEADERS, [row.cells() for row in rows])
        print("spread: from the 20th to the 80th percentile of the rounds' ratios.")
        print(noise(rows))
        print(summary(rows))
    if small is not None:
        print(small.sentence())
    if stages:
        goals = f"goals {COLD_GOAL_MS:.0f} ms machine code, {WARM_GOAL_MS:.0f} ms from disk"
        print_table(
            f"Compile time, ms ({goals})", STAGE_HEADERS, [stage_cells(item) for item in stages]
        )
    for remark in [title, *remarks]:
        print(f"- {remark}")
    records = [{"environment": title, "remarks": remarks}, *map(asdict, rows), *stages]
    write_json(parsed.json, records + ([asdict(small)] if small is not None else []))
    return int(any(row.problem for row in rows))


if __name__ == "__main__":
    sys.exit(main())
