"""``python -m tools.sanitize --device cuda --seconds 190``.

Kernels of every structure at small, awkward sizes: beside borders that must not change and must not
matter, then under memcheck, racecheck, initcheck and synccheck of compute-sanitizer where it is
installed. ``--device ptx`` needs no GPU: the PTX machine runs what Triton compiles for one. Prints
a table and exits with 1 if something was found.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tools.sanitize.summaries import NAME, TOOLS, Summary, command, find_sanitizer, read_log
from tools.sanitize.worker import read_lines

HUNG_S = 60.0
"""Without a line from a worker: it is ended, and goes on behind what it was at."""
BORDER_SHARE = 0.4
"""Of the time, where there is a sanitizer to run after that."""
GRACE_S = 12.0
TOOL_GRACE_S = 25.0
"""For what a worker is at when its time is up, many times slower under a tool, and the summary."""
MOST_SHOWN = 12
PROBLEMS = ("written", "depends", "differs", "wrong", "failed", "hung")


@dataclass
class Child:
    """A process with its part of the subjects."""

    args: list[str]
    out: Path
    log: Path
    process: subprocess.Popen[bytes] | None = None
    seen: tuple[int, float] = (0, 0.0)
    """Size of its file, and since when."""
    title: str = ""
    ended: list[str] = field(default_factory=list[str])
    """Items that it was at when it hung or died."""

    def start(self) -> None:
        """Begin, or go on."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.args, stdout=log, stderr=log)
        self.seen = (0, time.monotonic())

    def watch(self) -> bool:
        """Whether it still runs; one that hangs or died is started again."""
        assert self.process is not None
        size = self.out.stat().st_size if self.out.exists() else 0
        if size != self.seen[0]:
            self.seen = (size, time.monotonic())
        code, is_hung = self.process.poll(), time.monotonic() - self.seen[1] > HUNG_S
        if code is None and not is_hung:
            return True
        if code == 0:
            return False
        self.stop()
        lines = read_lines(self.out)
        if lines and "begins" in lines[-1]:
            self.ended.append(f"{lines[-1]['begins']} ({'hung' if code is None else code})")
        elif not lines or code is None:
            return False
        self.start()
        return True

    def stop(self) -> None:
        """End it, if it runs."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def run_all(children: Sequence[Child], seconds: float, jobs: int) -> None:
    """So many at a time, until all are done or the time is up."""
    end, waiting, running = time.monotonic() + seconds, list(children), list[Child]()
    while (waiting or running) and time.monotonic() < end:
        while waiting and len(running) < jobs:
            running.append(waiting.pop(0))
            running[-1].start()
        time.sleep(0.5)
        running = [child for child in running if child.watch()]
    for child in running:
        child.stop()


def border_children(options: argparse.Namespace, folder: Path, seconds: float) -> list[Child]:
    """Processes that run all subjects beside borders."""
    children: list[Child] = []
    for part in range(options.jobs):
        out, log = folder / f"borders_{part}.jsonl", folder / f"borders_{part}.txt"
        program = _program(options, part, options.jobs, seconds, out)
        children.append(Child(program, out, log, title="borders"))
    return children


def tool_children(
    options: argparse.Namespace, folder: Path, seconds: float, sanitizer: str
) -> list[Child]:
    """A process for each tool and group of subjects."""
    groups = max(1, options.jobs // len(TOOLS))
    children: list[Child] = []
    for part in range(groups):
        for tool in TOOLS:
            out, log = folder / f"{tool}_{part}.jsonl", folder / f"{tool}_{part}.txt"
            program = [*_program(options, part, groups, seconds, out), "--plain"]
            # A log for each process: one that is started again must not lose the first.
            started = command(sanitizer, tool, folder / f"{tool}_{part}.%p.log", program)
            children.append(Child(started, out, log, title=tool))
    return children


def _program(
    options: argparse.Namespace, part: int, parts: int, seconds: float, out: Path
) -> list[str]:
    until = time.time() + seconds
    numbers = {"part": part, "parts": parts, "until": until, "device": options.device}
    given = [text for name, value in numbers.items() for text in (f"--{name}", str(value))]
    return [sys.executable, "-m", "tools.sanitize.worker", *given, "--out", str(out)]


def results(children: Sequence[Child]) -> list[dict[str, Any]]:
    """What ended, and what ended its process."""
    found = [line for child in children for line in read_lines(child.out) if "ends" in line]
    structures = {
        line["begins"]: line["structure"]
        for child in children
        for line in read_lines(child.out)
        if "begins" in line
    }
    for child in children:
        for text in child.ended:
            name = text.rpartition(" (")[0]
            found.append({"ends": name, "structure": structures.get(name, ""), "hung": text})
    return found


def border_table(found: Sequence[dict[str, Any]]) -> list[str]:
    """A row for each structure."""
    heads = ("configs", "written", "depends", "differs", "wrong", "failed", "hung", "no_room")
    rows = [f"{'structure':<18}" + "".join(f"{head:>9}" for head in heads)]
    for name in sorted({line["structure"] for line in found}):
        mine = [line for line in found if line["structure"] == name]
        counts = [len(mine), *(sum(bool(line.get(head)) for line in mine) for head in heads[1:])]
        rows.append(f"{name:<18}" + "".join(f"{count:>9}" for count in counts))
    return rows


def problem_lines(found: Sequence[dict[str, Any]]) -> list[str]:
    """What was found, one line each, a few of each kind."""
    lines: list[str] = []
    for kind in PROBLEMS:
        mine = [line for line in found if line.get(kind)]
        lines += [f"{kind}: {line['ends']}: {str(line[kind])[:300]}" for line in mine[:MOST_SHOWN]]
        if len(mine) > MOST_SHOWN:
            lines.append(f"{kind}: {len(mine) - MOST_SHOWN} more")
    return lines


def tool_table(children: Sequence[Child], folder: Path) -> list[tuple[str, int, Summary]]:
    """For each process under a tool how many configs ran and what the tool says."""
    rows: list[tuple[str, int, Summary]] = []
    for child in children:
        ended = sum("ends" in line for line in read_lines(child.out))
        logs = sorted(folder.glob(f"{child.out.stem}.*.log"))
        summaries = [read_log(log.read_text(errors="replace")) for log in logs] or [Summary(None)]
        counts = [summary.errors for summary in summaries]
        is_whole = None not in counts
        errors = sum(count or 0 for count in counts) if is_whole or any(counts) else None
        first = next((summary.first for summary in summaries if summary.first), "")
        names = dict.fromkeys(name for summary in summaries for name in summary.kernels)
        rows.append((child.out.stem, ended, Summary(errors, first, tuple(names))))
    return rows


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=190.0)
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--borders", action="store_true", help="only these, no sanitizer")
    parser.add_argument("--json", type=Path, help="a file for everything that was found")
    options = parser.parse_args()
    sanitizer = None if options.borders or options.device in ("cpu", "ptx") else find_sanitizer()
    if options.device == "ptx":
        print("The PTX machine runs what Triton compiles for sm_90: borders, and races of warps.")
    elif sanitizer is None and not options.borders:
        print(f"{NAME} is not on this machine (or not for this device): only borders are checked.")
        print("They show writes outside of tensors, and reads that matter; no races, no barriers.")
    left = options.seconds - GRACE_S
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ.setdefault("TRITON_CACHE_DIR", str(folder / "triton"))
        share = left * BORDER_SHARE if sanitizer else left
        children = border_children(options, folder, share - GRACE_S)
        run_all(children, share, options.jobs)
        found = results(children)
        print("\n".join([*border_table(found), *problem_lines(found)]), flush=True)
        if not found:
            print("".join(child.log.read_text()[-800:] for child in children if child.log.exists()))
        checked: list[tuple[str, int, Summary]] = []
        if sanitizer:
            checked = run_tools(options, folder, left - share, sanitizer)
        report = {"borders": found, "tools": [(n, c, asdict(s)) for n, c, s in checked]}
        if options.json:
            options.json.write_text(json.dumps(report, indent=1))
    bad = sum(any(line.get(kind) for kind in PROBLEMS) for line in found)
    errors = sum(summary.errors or 0 for _, _, summary in checked)
    print(f"{len(found)} configs beside borders, {bad} with findings; {errors} errors of tools")
    sys.exit(bool(bad or errors or not found))


def run_tools(
    options: argparse.Namespace, folder: Path, seconds: float, sanitizer: str
) -> list[tuple[str, int, Summary]]:
    """Run every tool, and print what each says."""
    # Its own pieces of memory for each tensor: the tools know nothing of torch's.
    os.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"
    children = tool_children(options, folder, seconds - TOOL_GRACE_S, sanitizer)
    run_all(children, seconds, options.jobs)
    checked = tool_table(children, folder)
    for name, count, summary in checked:
        told = "did not come to its end" if summary.errors is None else f"{summary.errors} errors"
        print(f"{name:<14} {count:4} configs  {told}  {summary.first[:160]}".rstrip())
        if summary.kernels:
            print(f"{'':<14} in {', '.join(summary.kernels)}"[:400])
    return checked


if __name__ == "__main__":
    main()
