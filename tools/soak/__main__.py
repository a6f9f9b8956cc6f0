"""``python -m tools.soak --minutes 60 [--device cuda]``.

Threads call kernels with shapes in turn and check results, forward and backward. Kernels are made,
differentiated and dropped. Searches run in between. In the last fifth there are only calls.
Samples are printed as they are taken, with ``--out FILE`` also to a file that can be read
meanwhile. The end fits a line to resident memory of both parts, compares the last third of the time
with the second, and exits with 1 if something grew.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from tools.soak.memory import Modules, growth_by_file
from tools.soak.sample import Sample, judge, take_sample, tell_growth
from tools.soak.workload import Counts, call_kernels, make_and_drop, search


def _watched(target: Callable[..., None], counts: Counts, *args: object) -> threading.Thread:
    def run() -> None:
        try:
            target(counts, *args)
        except BaseException as error:  # told at the end
            counts.problems.append(f"{target.__name__} ended by {type(error).__name__}: {error}")

    return threading.Thread(target=run, daemon=True)


@dataclass(frozen=True)
class Plan:
    """What runs for how long."""

    minutes: float
    device: str = "cpu"
    callers: int = 2
    quiet_share: float = 0.2
    """Of the time, at its end: no kernels are made then, and nothing is searched."""
    is_traced: bool = False
    """Whether memory of Python is traced, which slows everything."""

    @property
    def interval(self) -> float:
        """Seconds between samples."""
        return min(30.0, max(2.5, self.minutes * 60 / 80))


def soak(plan: Plan, show: Callable[[str], None] = print) -> tuple[list[Sample], list[str]]:
    """Run what is planned; the samples and the problems."""
    counts, begin, modules = Counts(), time.monotonic(), Modules(plan.device)
    stop, stop_making = threading.Event(), threading.Event()
    end, quiet_from = plan.minutes * 60, plan.minutes * 60 * (1 - plan.quiet_share)
    samples: list[Sample] = []
    tell_python: Callable[[], list[str]] | None = None
    with tempfile.TemporaryDirectory(dir=Path(tempfile.gettempdir()).parent) as folder:
        callers = [
            _watched(call_kernels, counts, stop, plan.device, number)
            for number in range(plan.callers)
        ]
        makers = [
            _watched(make_and_drop, counts, stop_making, plan.device, Path(folder)),
            _watched(search, counts, stop_making, plan.device),
        ]
        for thread in (*callers, *makers):
            thread.start()
        while (seconds := time.monotonic() - begin) < end and all(t.is_alive() for t in callers):
            if seconds > quiet_from:
                stop_making.set()
            elif not all(thread.is_alive() for thread in makers):
                break
            if plan.is_traced and tell_python is None and seconds > end / 3:
                tell_python = growth_by_file()
            time.sleep(plan.interval)
            seconds, times = time.monotonic() - begin, counts.take_times()
            is_quiet = not any(thread.is_alive() for thread in makers)
            samples.append(
                take_sample(
                    *(seconds, *times, tempfile.gettempdir(), modules.memory()), is_quiet=is_quiet
                )
            )
            show(samples[-1].line())
        stop.set()
        stop_making.set()
        for thread in (*callers, *makers):
            thread.join()
    for line in (_total(samples, counts), *tell_growth(samples), *(tell_python or list)()):
        show(line)
    return samples, judge(samples, counts.problems)


def _total(samples: Sequence[Sample], counts: Counts) -> str:
    return (
        f"{counts.calls} calls, {len(samples)} samples, {counts.checked} compared with fp64, "
        f"{counts.made} kernels made, differentiated and dropped, {counts.searches} searches"
    )


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=2, help="that call kernels")
    parser.add_argument(
        "--quiet-share", type=float, default=0.2, help="with calls only, at the end"
    )
    parser.add_argument("--out", type=Path, help="a file that gets each line, too, at once")
    parser.add_argument("--trace-memory", action="store_true", help="of Python; slow")
    options = parser.parse_args()
    plan = Plan(
        *(options.minutes, options.device, options.threads, options.quiet_share),
        is_traced=options.trace_memory,
    )
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        # A temporary folder of our own, in which others leave nothing.
        tempfile.tempdir = os.environ["TMPDIR"] = str(Path(folder, "tmp"))
        Path(tempfile.tempdir).mkdir()
        show = printer(stack.enter_context(options.out.open("w")) if options.out else None)
        _, problems = soak(plan, show)
        show("\n".join(problems) or "nothing grew, nothing was wrong")
    sys.exit(bool(problems))


def printer(file: TextIO | None) -> Callable[[str], None]:
    """Prints lines at once, also to a file."""

    def show(line: str) -> None:
        for place in (sys.stdout, file):
            if place is not None:
                print(line, file=place, flush=True)

    return show


if __name__ == "__main__":
    main()
