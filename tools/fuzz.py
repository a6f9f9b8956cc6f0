"""Checks many random programs in worker processes; exits with 1 if any computes something else.

``python -m tools.fuzz --count 5000 --seed 7 [--device cuda] [--jobs 8]``. Each failing program is
written as a file that runs it again. A worker that hangs or dies is reported with its program and
replaced.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from pathlib import Path

from tests.fuzzing.choices import RandomChoices
from tests.fuzzing.grow import grow_program
from tests.fuzzing.processes import Job, check_all

GOOD = ("same", "undecided", "refused")
"""Nothing is wrong: results agree, or there are none to compare."""
INTERPRETED_SHARE = 10
"""Without a GPU one program in so many also runs under Triton's interpreter."""

FILE = '''"""A random program that does not compute what it should: {way}

{problem}

{source}
Sizes: {sizes}
Run it from the root of the repository: PYTHONPATH=src:. python {name}
"""

from tests.fuzzing.replay import replay

if __name__ == "__main__":
    replay(decisions={decisions}, index={index}, mode={mode!r})
'''


def write_program(job: Job, answer: Job, folder: Path) -> Path:
    """A file that runs a failing program again."""
    choices = RandomChoices(f"{job['seed']}/{job['index']}")
    program = grow_program(choices)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"program_{job['seed']}_{job['index']}_{job['mode']}.py"
    text = FILE.format(
        way=answer["way"],
        problem=answer["problem"].replace("\\", "/").replace('"""', "'''"),
        source=answer.get("source", program.source()),
        sizes=answer.get("sizes", dict(program.sizes)),
        name=path,
        decisions=answer.get("decisions", choices.taken),
        index=job["index"],
        mode=job["mode"],
    )
    path.write_text(text)
    return path


def make_jobs(options: argparse.Namespace) -> list[Job]:
    """What to check: each program on the device; without a GPU some by interpretation too."""
    mode = "cuda" if options.device == "cuda" else "host" if options.no_build else "build"
    numbers = range(options.first, options.first + options.count)
    shared = {"seed": options.seed, "shrink": not options.no_shrink}
    jobs: list[Job] = [{**shared, "index": n, "mode": mode} for n in numbers]
    if mode == "cuda":
        return jobs
    return jobs + [
        {**shared, "index": n, "mode": "interpret"} for n in numbers[::INTERPRETED_SHARE]
    ]


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--count", type=int, default=1000)
    add("--seed", type=int, default=0)
    add("--first", type=int, default=0, help="number of the first program")
    add("--device", choices=("cpu", "cuda"), default="cpu")
    add("--jobs", type=int, default=os.cpu_count(), help="processes")
    add("--timeout", type=float, default=240.0, help="seconds for one program")
    add("--no-build", action="store_true", help="emit Triton code but do not compile it")
    add("--no-shrink", action="store_true", help="leave failing programs as they are")
    add("--out", default="fuzz-failures", help="folder for failing programs")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Run from the command line."""
    options = parse(arguments)
    jobs, outcomes, start = make_jobs(options), Counter[str](), time.monotonic()

    def report(job: Job, answer: Job) -> None:
        outcomes[answer["outcome"]] += 1
        if answer["outcome"] not in GOOD:
            path = write_program(job, answer, Path(options.out))
            print(f"{answer['outcome']}: {path}\n  {answer['way']}\n  {answer['problem'][:300]}")
            sys.stdout.flush()

    check_all(jobs, options.jobs, options.timeout, report)
    bad = sum(outcomes.values()) - sum(outcomes[outcome] for outcome in GOOD)
    found = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common())
    seconds = time.monotonic() - start
    print(f"{options.count} programs of seed {options.seed} in {seconds:.0f} s, checks: {found}")
    return 1 if bad or len(jobs) != sum(outcomes.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
