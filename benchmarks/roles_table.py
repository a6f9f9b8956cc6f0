"""One table of attention, chunked recurrences and products by default configs against the vendor's.

    python -m benchmarks.roles_table [--only forward,fp8] [--json rows.jsonl] [--limit 190]

Worker processes build everything side by side, with empty caches. When all are ready, one line
after the other is checked and timed, so that nothing else runs on the device or the host: errors
against fp64, 50 calls with poisoned results that must give the same bits, then ours and all rivals
in turns with a cold L2 cache. A ratio is the rival's time over ours, of medians; its spread the
middle half of the ratios of single rounds. Lines are printed when they are known and once more as a
table at the end. Without a GPU shapes are tiny: that tries the table, not the kernels.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import torch

from benchmarks import attention_forward
from benchmarks.checking import describe, results_of
from benchmarks.gpu_defaults import environment
from benchmarks.gpu_tuning import geometric_mean
from benchmarks.product_cases import DEVICE
from benchmarks.role_rows import LONGEST_BUILD_S, Built, Line, lines
from examples.attention import attention

ROOT = Path(__file__).parents[1]
REPEATS, ROUNDS = 50, 10
LINE_LIMIT_S = 40.0
WORKERS = 10
THEN = "ours then"
Samples = dict[str, list[float]]
Heard = queue.Queue[dict[str, Any]]


@dataclass
class Row:
    """What was found of one line; one that failed has a problem."""

    name: str
    goal: float | None = None
    ours_ms: float = 0.0
    rival: str = ""
    rival_ms: float = 0.0
    ratio: float = 0.0
    low: float = 0.0
    high: float = 0.0
    """The middle half of ratios of single rounds."""
    others: dict[str, float] = field(default_factory=dict[str, float])
    """Ratios to the other rivals."""
    error: float = 0.0
    num_changed: int = 0
    """Of the repeats, those that gave other bits."""
    forms: list[str] = field(default_factory=list[str])
    compile_s: float = 0.0
    problem: str = ""

    @property
    def verdict(self) -> str:
        """Whether the goal was reached."""
        if self.problem or self.goal is None:
            return self.problem or "-"
        return "yes" if self.ratio >= self.goal else "**no**"


def in_turns(calls: dict[str, Callable[[], Any]], rounds: int) -> Samples:
    """Milliseconds of each call."""
    if DEVICE == "cuda":
        return attention_forward.times(calls, rounds)
    found: Samples = {name: [] for name in calls}
    for name in [name for _ in range(rounds * attention_forward.RUNS) for name in calls]:
        start = time.perf_counter()
        calls[name]()
        found[name].append((time.perf_counter() - start) * 1e3)
    return found


def round_ratios(ours: Sequence[float], rival: Sequence[float]) -> list[float]:
    """The rival's median over ours, round by round."""
    runs = attention_forward.RUNS
    starts = range(0, len(ours), runs)
    return [median(rival[n : n + runs]) / median(ours[n : n + runs]) for n in starts]


def count_changes(call: Callable[[], Any], repeats: int = REPEATS) -> int:
    """Of many repeats over poisoned results, those whose bits differ from the first one's."""
    first = [result.clone() for result in results_of(call())]
    changed = 0
    for _ in range(repeats):
        # Freed right after, or the memory of a graph: what the next call writes to.
        for result in results_of(call()):
            result.fill_(float("nan"))
        changed += not all(map(torch.equal, first, results_of(call())))
    return changed


def measure(line: Line, built: Built, rounds: int) -> Row:
    """Check, then time."""
    row = Row(line.name, line.goal, forms=built.forms, compile_s=built.compile_s)
    row.error = built.error(built.ours())
    row.num_changed = count_changes(built.ours)
    samples = in_turns({"ours": built.ours, **built.rivals}, rounds)
    row.ours_ms = median(samples["ours"])
    times = {name: median(samples[name]) for name in built.rivals}
    # Where a rival of our own is first, it is what the goal is about.
    named = [name for name in times if name.startswith("our ")] or sorted(
        times, key=times.__getitem__
    )
    row.rival = named[0]
    ratios = round_ratios(samples["ours"], samples[row.rival])
    row.others = {name: ms / row.ours_ms for name, ms in times.items() if name != row.rival}
    row.rival_ms = times[row.rival]
    if built.then_ms:
        row.others = {name: ms / row.ours_ms for name, ms in times.items()}
        row.rival, row.rival_ms = THEN, built.then_ms
        ratios = [built.then_ms / ms for ms in samples["ours"]]
    row.ratio = row.rival_ms / row.ours_ms
    row.low, _, row.high = quantiles(ratios, n=4, method="inclusive")
    return row


def say(**message: Any) -> None:
    """One line to the process that asked."""
    print(json.dumps(message), flush=True)


def warm_up() -> None:
    """What only the first kernels of a process cost."""
    length = 1024 if DEVICE == "cuda" else 32
    q = torch.zeros(1, 32, length, 64, device=DEVICE, dtype=torch.bfloat16)
    attention(q, q, q)


def work(names: Sequence[str], rounds: int) -> None:
    """A worker: build all, then measure what standard input asks for."""
    chosen = {line.name: line for line in lines() if line.name in names}
    built: dict[str, Built] = {}
    problems: dict[str, str] = {}
    warm_up()
    for name in names:
        try:
            built[name] = chosen[name].build()
        except Exception as error:
            problems[name] = describe(error)
        say(built=name)
    for name in map(str.strip, sys.stdin):
        try:
            row = Row(name, problem=problems.get(name, ""))
            if name in built:
                row = measure(chosen[name], built.pop(name), rounds)
        except Exception as error:
            row = Row(name, problem=describe(error))
        say(row=asdict(row))
        if DEVICE == "cuda":
            torch.cuda.empty_cache()


class Worker:
    """A process that builds some lines and waits for its turns; what it says goes to a queue."""

    def __init__(self, names: Sequence[str], prefix: Sequence[str], heard: Heard) -> None:
        self._heard = heard
        command = [*prefix, "--worker", *names]
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        self.waiting = set(names)
        """Lines that it has not built yet."""
        self.last_words = "no message"
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                message = json.loads(line)
                self.waiting.discard(message.get("built", ""))
                self._heard.put(message)
            elif line.strip():
                self.last_words = line.strip()
        self.waiting.clear()
        self._heard.put({"ended": id(self)})

    def ask(self, name: str) -> None:
        """Let it measure a line; a process that has ended does not answer."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(name + "\n")
            self._process.stdin.flush()
        except (OSError, ValueError):  # gone, or ended by us
            self._heard.put({"ended": id(self)})

    def end(self) -> None:
        """Whatever it does."""
        self._process.kill()
        self._process.wait()
        self._listener.join()
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):  # what it was never told
                pipe.close() if pipe else None


def command(folder: str, rounds: int) -> list[str]:
    """Of a worker; its caches are empty, otherwise it is not known how long building takes."""
    variables = {
        "TRITON_CACHE_DIR": f"{folder}/triton", "XDG_CACHE_HOME": folder,
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
    }  # fmt: skip
    given = [f"{name}={value}" for name, value in variables.items()]
    return ["env", *given, sys.executable, "-m", "benchmarks.roles_table", f"--rounds={rounds}"]


def run_all(
    names: Sequence[str],
    prefix: Sequence[str],
    parsed: argparse.Namespace,
    tell: Callable[[Row], None],
) -> None:
    """Build side by side, then measure one after the other, until the time is up."""
    start = time.monotonic()
    heard: Heard = queue.Queue()
    count = max(1, min(parsed.workers, len(names)))
    workers = [Worker(names[first::count], prefix, heard) for first in range(count)]
    try:
        while any(worker.waiting for worker in workers) and time.monotonic() < start + parsed.build:
            next_message(heard, 1.0)
        print(f"built after {time.monotonic() - start:.0f} s", flush=True)
        owners = {name: workers[place % count] for place, name in enumerate(names)}
        # One that hangs while it builds costs its own lines alone.
        for name in sorted(names, key=lambda name: bool(owners[name].waiting)):
            tell(answer(owners[name], name, heard, start + parsed.limit))
    finally:
        for worker in workers:
            worker.end()


def next_message(heard: Heard, seconds: float) -> dict[str, Any]:
    """What the next worker says, or nothing."""
    try:
        return heard.get(timeout=max(0.0, seconds))
    except queue.Empty:
        return {}


def answer(worker: Worker, name: str, heard: Heard, end: float) -> Row:
    """The row of one line; a worker that is late or ends leaves a problem."""
    seconds = min(LINE_LIMIT_S, end - time.monotonic())
    if seconds <= 0 or worker.waiting:
        return Row(name, problem="not built" if worker.waiting else "not reached")
    last = time.monotonic() + seconds
    worker.ask(name)
    while time.monotonic() < last:
        message = next_message(heard, last - time.monotonic())
        if "row" in message and message["row"]["name"] == name:
            return Row(**message["row"])
        if message.get("ended") == id(worker):
            return Row(name, problem=f"ended: {worker.last_words}")
    worker.end()
    return Row(name, problem=f"no answer in {seconds:.0f} s")


HEADERS = (
    "", "ours ms", "rival", "ms", "ratio (middle half)", "goal", "reached", "other rivals", "error",
    f"other bits in {REPEATS}", "form", "build s",
)  # fmt: skip


def cells(row: Row) -> list[str]:
    """One line of the table."""
    if row.problem:
        return [row.name, *[""] * 5, row.problem, *[""] * 5]
    late = row.compile_s > LONGEST_BUILD_S
    return [
        row.name, f"{row.ours_ms:.4f}", row.rival, f"{row.rival_ms:.4f}",
        f"{row.ratio:.3f} ({row.low:.3f} to {row.high:.3f})",
        "" if row.goal is None else f"{row.goal:.3f}", row.verdict,
        ", ".join(f"{name} {ratio:.2f}" for name, ratio in row.others.items()), f"{row.error:.1e}",
        str(row.num_changed), ", ".join(dict.fromkeys(row.forms)),
        f"**{row.compile_s:.1f}**" if late else f"{row.compile_s:.1f}",
    ]  # fmt: skip


def markdown(cells_of_row: Sequence[str]) -> str:
    """One line of a table."""
    return f"| {' | '.join(cells_of_row)} |"


def summary(rows: Sequence[Row]) -> list[str]:
    """Geometric means of products, and what was missed."""
    good = [row for row in rows if not row.problem]
    found: list[str] = []
    for kind in ("product", "held"):
        ratios = [row.ratio for row in good if row.name.startswith(kind) and "gelu" not in row.name]
        if ratios:
            mean, least = geometric_mean(ratios), min(ratios)
            found.append(
                f"{kind}: geometric mean {mean:.3f}, least {least:.3f}, {len(ratios)} shapes"
            )
    missed = [row.name for row in good if row.verdict == "**no**"]
    failed = [row.name for row in rows if row.problem]
    changed = [row.name for row in good if row.num_changed]
    late = [row.name for row in good if row.compile_s > LONGEST_BUILD_S]
    for title, names in {
        "goals missed": missed, "failed": failed, "other bits": changed, "built too long": late
    }.items():  # fmt: skip
        found.append(f"{title}: {', '.join(names) or 'none'}")
    return found


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="lines whose names contain one of these")
    parser.add_argument("--list", action="store_true", help="print the names and end")
    parser.add_argument("--json", type=Path, help="append rows to this file as they are known")
    parser.add_argument("--limit", type=float, default=190.0, help="seconds for all")
    parser.add_argument("--build", type=float, default=90.0, help="seconds for building")
    parser.add_argument("--workers", type=int, default=WORKERS, help="processes that build")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="turns of each call")
    parser.add_argument("--worker", nargs="*", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parsed = parse_arguments(arguments)
    if parsed.worker is not None:
        work(parsed.worker, parsed.rounds)
        return
    parts = parsed.only.split(",")
    goals = {line.name: line.goal for line in lines()}
    names = [name for name in goals if any(part in name for part in parts)]
    if parsed.list:
        print("\n".join(names))
        return
    rows: list[Row] = []

    def tell(row: Row) -> None:
        row.goal = goals[row.name]
        rows.append(row)
        print(markdown(cells(row)), flush=True)
        if parsed.json is not None:
            with parsed.json.open("a") as file:
                file.write(json.dumps(asdict(row)) + "\n")

    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        run_all(names, command(folder, parsed.rounds), parsed, tell)
    rows.sort(key=lambda row: names.index(row.name))
    facts = environment()
    print(f"\n{facts['device']}, torch {facts['torch']}, {time.monotonic() - start:.0f} s\n")
    print("\n".join(map(markdown, [HEADERS, ["---"] * len(HEADERS), *map(cells, rows)])))
    print("\n".join(["", *summary(rows)]))


if __name__ == "__main__":
    main()
