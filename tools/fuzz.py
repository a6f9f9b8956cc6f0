"""Checks many random programs in worker processes; exits with 1 if any computes something else.

``python -m tools.fuzz --count 5000 --seed 7 [--device cuda] [--jobs 8] [--seconds 480]``. Writes a
line for each program to a log, and goes on where that ends. Each failing program is made smaller
and written as a file that runs it again (``--one-file``: as a line of ``failures.jsonl``). A worker
that hangs or dies is reported with its program and replaced. At the end: how many kernels, shapes
and configs were compared, and which pairs of features they had. A case is a kernel, a set of sizes
and a config whose results were compared: where a kernel takes any sizes many cases share one
compiled code, else each has its own. ``--device cuda --unlaunched`` compiles what a GPU would run,
on a machine without one; ``--device ptx`` also runs it, by the PTX machine (``tools/ptx_machine``).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path

from tests.fuzzing.coverage import read_coverage
from tests.fuzzing.processes import Job, Limits, check_all
from tests.fuzzing.records import GOOD, Records, commit
from tests.fuzzing.saved_programs import write_saved
from tests.fuzzing.ways import GPU_MODES

OTHER_SHARE = 10
"""Without a GPU one program in so many also runs under Triton's interpreter, and as many others
are grown for their gradients."""
INTERPRETED_MEMBERS = 4
"""Shapes of those, since the interpreter takes a second for some."""
ROWS_SHARE, DEVICE_ROWS_SHARE = 9, 5
"""One program in so many has rows or products that programs of a GPU may share."""
OTHER_MODES = {"interpret": 0, "gradient": 5}
"""And which ones of so many as ``OTHER_SHARE``."""
CANDIDATES = 4
"""Programs that are grown for each that is run: the one with the rarest features."""
SAVE_EVERY = 50


def write_program(job: Job, answer: Job, folder: Path) -> Path:
    """A file that ``tests.fuzzing.replay`` runs again."""
    path = folder / f"program_{job['seed']}_{job['index']}_{job['mode']}.json"
    write_saved(path, answer["saved"])
    return path


def add_program(job: Job, answer: Job, folder: Path) -> str:
    """The same as a line among others, for where files are counted; names file and line."""
    path = folder / "failures.jsonl"
    number = path.read_text().count("\n") + 1 if path.exists() else 1
    head = {name: job[name] for name in ("seed", "index", "mode")}
    with path.open("a") as file:
        file.write(json.dumps({**head, **answer["saved"]}) + "\n")
    return f"{path}:{number}"


def make_jobs(options: argparse.Namespace) -> list[Job]:
    """What to check: each program on the device; without a GPU some by interpretation too."""
    mode = "host" if options.no_build else "build"
    if options.device != "cpu":
        mode = "unlaunched" if options.unlaunched else options.device
    numbers = range(options.first, options.first + options.count)
    shared = {"seed": options.seed, "shrink": not options.no_shrink, "candidates": CANDIDATES}
    if options.program_seconds is not None:
        shared["seconds"] = options.program_seconds

    def jobs(mode: str, chosen: range, members: int) -> list[Job]:
        own = {**shared, "mode": mode, "members": members}
        share = DEVICE_ROWS_SHARE if mode in GPU_MODES else ROWS_SHARE
        has_rows = mode != "gradient"
        return [{**own, "index": n, "rows": has_rows and n % share == share - 1} for n in chosen]

    if mode in GPU_MODES:
        return jobs(mode, numbers, options.members)
    few = min(INTERPRETED_MEMBERS, options.members)
    if options.gradients:
        return jobs("gradient", numbers, few)
    if options.exported:
        return jobs("interpret", numbers, few)
    some = [(mode, numbers[place::OTHER_SHARE]) for mode, place in OTHER_MODES.items()]
    others = [job for mode, chosen in some for job in jobs(mode, chosen, few)]
    return jobs(mode, numbers, options.members) + others


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--count", type=int, default=1000)
    add("--seed", type=int, default=0)
    add("--first", type=int, default=0, help="number of the first program")
    add("--members", type=int, default=40, help="more shapes for each kernel that takes them")
    add("--device", choices=("cpu", "cuda", "ptx"), default="cpu")
    add("--unlaunched", action="store_true", help="compile for a GPU that is not there")
    add("--jobs", type=int, default=os.cpu_count(), help="processes")
    add("--timeout", type=float, default=240.0, help="seconds for a shape and config")
    add("--seconds", type=float, default=float("inf"), help="begin nothing after so many")
    add("--program-seconds", type=float, help="for one program; what was compared counts")
    add("--gradients", action="store_true", help="compare derived gradients only")
    add("--exported", action="store_true", help="run exported modules only, interpreted")
    add("--no-build", action="store_true", help="emit Triton code but do not compile it")
    add("--no-shrink", action="store_true", help="leave failing programs as they are")
    add("--one-file", action="store_true", help="failing programs as lines of one file, no tables")
    add("--out", default="fuzz-failures", help="folder for failing programs, log and coverage")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Run from the command line."""
    options = parse(arguments)
    folder, start, bad = Path(options.out), time.monotonic(), 0
    folder.mkdir(parents=True, exist_ok=True)
    records, version = Records(folder / "log.jsonl"), commit()
    covered = folder / "coverage.json"
    coverage = read_coverage(covered)
    jobs = [job for job in make_jobs(options) if not records.is_done(job)]
    done = 0

    def report(job: Job, answer: Job) -> None:
        nonlocal bad, done
        done += 1
        coverage.add(map(tuple, answer.get("pairs", ())))
        line = {name: job[name] for name in ("seed", "index", "mode")}
        line |= {"commit": version, "outcome": answer["outcome"], "cases": answer.get("cases", {})}
        line |= {"refused": answer.get("refused", 0), "seconds": answer.get("seconds", {})}
        if answer["outcome"] not in GOOD:
            bad += 1
            write = add_program if options.one_file else write_program
            path = write(job, answer, folder) if "saved" in answer else None
            line |= {"way": answer["way"], "problem": answer["problem"][:300], "file": str(path)}
            print(f"{answer['outcome']}: {path}\n  {answer['way']}\n  {answer['problem'][:300]}")
            sys.stdout.flush()
        records.add(line)
        if done % SAVE_EVERY == 0:
            covered.write_text(json.dumps(coverage.rows()))

    limits = Limits(options.jobs, options.timeout, options.seconds, str(covered))
    check_all(jobs, limits, report)
    covered.write_text(json.dumps(coverage.rows()))
    if not options.one_file:
        (folder / "coverage.txt").write_text(f"{coverage.table()}\n\n{coverage.by_op()}\n")
    print(f"{coverage.table()}\n{records.summary()}")
    seconds = time.monotonic() - start
    print(f"{done} of {len(jobs)} programs of seed {options.seed} in {seconds:.0f} s")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
