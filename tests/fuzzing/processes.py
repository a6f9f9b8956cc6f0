"""Processes that check random programs: started, watched and replaced when they hang or die."""

from __future__ import annotations

import json
import math
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from tests.fuzzing.ways import GPU_MODES
from tests.warm_python import warm_python

ROOT = Path(__file__).parents[2]
GRACE_SECONDS = 12
"""After the end of the time, for what was begun: compiling one config."""
START_SECONDS = 300
Job = dict[str, Any]


def environment(*, interprets: bool) -> dict[str, str]:
    """This process's own, with its import path."""
    paths = os.pathsep.join(path for path in sys.path if path)
    # oneDNN's products of bf16 by AMX fail on some virtual machines.
    own = {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_FP16", **os.environ, "PYTHONPATH": paths}
    return {**own, "TRITON_INTERPRET": "1"} if interprets else own


class Worker:
    """One process that checks programs one after the other."""

    def __init__(self, mode: str, coverage: str = "") -> None:
        self.mode = mode
        self.coverage = coverage
        """A file with what was covered before."""
        self._start()

    def _start(self) -> None:
        # A process for a GPU has nothing in common with others.
        python = (sys.executable,) if self.mode in GPU_MODES else warm_python()
        self._process = subprocess.Popen(
            [*python, "-m", "tests.fuzzing.worker", self.mode, self.coverage],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=environment(interprets=self.mode == "interpret"),
        )
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(
            target=self._read, args=(self._process, self._lines), daemon=True
        )
        self._reader.start()
        if self._lines.get(timeout=START_SECONDS) != "ready\n":
            raise RuntimeError("a worker did not start")

    @staticmethod
    def _read(process: subprocess.Popen[str], lines: queue.Queue[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.put(line)
        lines.put("")

    def check(self, job: Job, timeout: float, stop: float = math.inf) -> Job:
        """The answer to a job, also if the process hangs or dies of it, or the time is over."""
        last = stop + GRACE_SECONDS
        assert self._process.stdin is not None
        what, answer, begun = "died", None, dict[str, Any]()
        try:
            self._process.stdin.write(json.dumps(job) + "\n")
            self._process.stdin.flush()
            while answer is None and (
                line := self._next_line(min(last, timeout + time.monotonic()))
            ):
                said = json.loads(line)
                answer = said if "outcome" in said else None
                begun |= {} if answer else said
        except queue.Empty:
            what = "hung"
        except BrokenPipeError:
            pass
        if answer is not None and not answer.pop("is_last", False):
            return answer
        self.stop()
        status = self._process.returncode
        if what == "hung" and time.monotonic() >= last:
            return {"outcome": "cut", "cases": begun.get("cases", {})}
        self._start()
        if answer is not None:
            return answer  # the process is of no use after it
        return {"outcome": what, **last_words(begun, f"the process {what} ({status})", self.mode)}

    def _next_line(self, end: float) -> str:
        """Empty where the process has ended; raises ``queue.Empty`` where the time is over."""
        return self._lines.get(timeout=max(0.0, end - time.monotonic()))

    def stop(self) -> None:
        """End the process."""
        self._process.kill()
        self._reader.join()
        # Closes the pipes too.
        self._process.communicate()


def last_words(begun: Job, problem: str, mode: str) -> Job:
    """The answer for a process that gave none: with its program and what it was about to run."""
    way, cases = begun.get("at", mode), begun.get("cases", {})
    if "begun" not in begun:
        return {"way": way, "problem": problem}
    saved = begun["begun"]
    last = begun.get("shape", 0) + 1
    note = f"{problem} in shape {last}: {way}"
    return {"way": way, "problem": note, "cases": cases, "saved": {**saved, "note": note}}


@dataclass(frozen=True)
class Limits:
    """For all workers together.

    Attributes:
        timeout: seconds for one way to run one shape of a program.
        seconds: after which nothing is begun, not even another shape of a program.
        coverage: a file with what was covered before.
    """

    workers: int
    timeout: float
    seconds: float = float("inf")
    coverage: str = ""


def check_all(jobs: Sequence[Job], limits: Limits, report: Callable[[Job, Job], None]) -> None:
    """Give jobs to workers; ``report`` gets each job with its answer, one at a time."""
    stop = time.monotonic() + limits.seconds
    waiting: dict[str, queue.SimpleQueue[Job]] = {}
    for job in jobs:
        waiting.setdefault(job["mode"], queue.SimpleQueue()).put(job)
    lock = threading.Lock()

    def work(first: str) -> None:
        for mode in sorted(waiting, key=lambda mode: mode != first):
            for job, answer in _answers(mode, waiting[mode], limits, stop):
                with lock:
                    report(job, answer)

    modes = list(waiting)
    # Most workers begin with the first mode; one in eight with the last.
    threads = [
        threading.Thread(target=work, args=(modes[-1] if n % 8 == 1 else modes[0],))
        for n in range(limits.workers)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _answers(
    mode: str, waiting: queue.SimpleQueue[Job], limits: Limits, stop: float
) -> Iterator[tuple[Job, Job]]:
    worker: Worker | None = None
    while time.monotonic() < stop:
        try:
            job = waiting.get_nowait()
        except queue.Empty:
            break
        worker = worker or Worker(mode, limits.coverage)
        job = job if math.isinf(stop) else {**job, "stop": stop}
        yield job, worker.check(job, limits.timeout, stop)
    if worker is not None:
        worker.stop()


def grade_injections(
    names: Sequence[str], limit: int, seed: int, *, jobs: int = 1, log: str = ""
) -> Iterator[Job]:
    """How soon each known bug is noticed; what the log knows is not looked for again."""
    waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
    for name in names:
        waiting.put(name)
    answers: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
    command = [*warm_python(), "-m", "tests.fuzzing.injection_worker", str(limit), str(seed)]
    threads = [
        threading.Thread(
            target=_grade, args=([*command, *([log] if log else [])], waiting, answers), daemon=True
        )
        for _ in range(min(jobs, len(names)))
    ]
    for thread in threads:
        thread.start()
    for _ in names:
        answer = answers.get()
        if answer is None:
            raise RuntimeError("a process that grades bugs failed")
        yield answer


def _grade(
    command: list[str],
    waiting: queue.SimpleQueue[str],
    answers: queue.SimpleQueue[Job | None],
) -> None:
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=environment(interprets=True),
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(queue.Empty):
            while True:
                line = _answer_line(process.stdin, process.stdout, waiting.get_nowait())
                answers.put(json.loads(line) if line else None)
                if not line:
                    return


def _answer_line(asked: IO[str], said: IO[str], name: str) -> str:
    """Empty where the process has ended."""
    with suppress(BrokenPipeError):
        print(name, file=asked, flush=True)
        for line in said:
            if line.startswith("{"):
                return line
    return ""
