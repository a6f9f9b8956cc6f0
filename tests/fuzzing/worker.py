"""A process that checks random programs: lines of JSON in and out.

A job is ``{"seed": ..., "index": ..., "mode": ..., "members": ..., "candidates": ...}``. Of so many
candidates the program with the rarest features is run, with so many more shapes. The answer has
``outcome``: "same", "undecided", "refused" (too large for a GPU in some way), "cut" (the time
``stop`` of the job came first: the same as far as it got) or "different", then with the failure and
a smaller program; and how many ``cases`` were compared.
Run as ``python -m tests.fuzzing.worker MODE COVERAGE``; "interpret" needs TRITON_INTERPRET in the
environment, since that decides how triton is imported.
"""

from __future__ import annotations

import gc
import json
import math
import os
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from tests.fuzzing.atomics import expect_device_memory
from tests.fuzzing.choices import Choices, RandomChoices, RecordedChoices, minimise
from tests.fuzzing.clock import Clock
from tests.fuzzing.coverage import Coverage, pairs_of, read_coverage
from tests.fuzzing.execution import Failure, Watch, first_failure, is_same_failure, judge
from tests.fuzzing.grow import grow_program
from tests.fuzzing.grow_rows import grow_rows
from tests.fuzzing.program import Program, UndecidedError
from tests.fuzzing.reductions import expect_matrix_units
from tests.fuzzing.saved_programs import restored, saved
from tests.fuzzing.variants import SIZES, family, with_sizes
from tests.fuzzing.ways import GPU_MODES, can_be_interpreted

INTERPRETED_CANDIDATES = 24
"""Most programs have something that Triton's interpreter does not."""
SHRINKING_SECONDS = 60
DEVICE_SHRINKING_SECONDS = 20
MOST_SHRUNK = 3
"""Failures that one process makes smaller on a device, whose time is short."""
STICKY = ("illegal memory access", "misaligned", "launch failure", "illegal instruction")
Job = dict[str, Any]


def _grown(choices: Choices, job: Job) -> Program:
    if job.get("rows"):
        return grow_rows(choices)
    return grow_program(choices, is_smooth=job["mode"] == "gradient")


def choose(job: Job, coverage: Coverage) -> RandomChoices:
    """The decisions of the candidate that teaches most: nothing where it cannot be run."""
    is_interpreted = job["mode"] == "interpret"
    count = INTERPRETED_CANDIDATES if is_interpreted else job.get("candidates", 1)
    candidates = [
        RandomChoices(f"{job['seed']}/{job['index']}" + (f"/{n}" if n else ""))
        for n in range(count)
    ]
    worth: list[float] = []
    for choices in candidates:
        program = _grown(choices, job)
        is_idle = is_interpreted and not can_be_interpreted(program)
        worth.append(0.0 if is_idle else coverage.rarity(pairs_of(program)))
    return candidates[worth.index(max(worth))]


Say = Callable[[Job], None]


def _quiet(_: Job) -> None:
    pass


def check(job: Job, coverage: Coverage, say: Say = _quiet) -> Job:
    """Grow the program of a job, run it, make it smaller if it fails.

    What is about to run is said before, for a process that does not survive it.
    """
    choices = choose(job, coverage)
    program = _grown(RecordedChoices(choices.taken), job)
    pairs = pairs_of(program)
    coverage.add(pairs)
    is_device = job["mode"] in GPU_MODES
    members = family(program, job["index"], job.get("members", 0), shares_code=is_device)
    if job["mode"] == "gradient":  # whole numbers only
        members = [replace(member, data="") for member in members]
    stop = min(job.get("stop", math.inf), time.monotonic() + job.get("seconds", math.inf))
    say({"begun": saved(members, job["index"], job["mode"], "the process ended or hung")})
    clock = Clock()
    watch = Watch(stop, lambda number, way, x: say({"shape": number, "at": way, "cases": dict(x)}))
    try:
        verdict = judge(members, job["index"], job["mode"], watch)
    except UndecidedError:
        return {"outcome": "undecided"}
    answer: Job = {"cases": dict(verdict.cases), "pairs": sorted(pairs)}
    answer |= {"refused": len(verdict.refused), "seconds": clock.seconds()}
    failure = verdict.failure
    if failure is None:
        good = "refused" if verdict.refused else "cut" if time.monotonic() > stop else "same"
        return {**answer, "outcome": good}
    found = members[: members.index(failure.program) + 1] if failure.program else members
    if not is_sticky(failure) and job.get("shrink", True):
        found = smaller(choices.taken, found, job, failure)
    note = f"{failure.way}\n{failure.problem}"
    answer |= {"saved": saved(found, job["index"], job["mode"], note)}
    return {**answer, "outcome": "different", "way": failure.way, "problem": failure.problem}


def answer_to(job: Job, coverage: Coverage, say: Say = _quiet) -> Job:
    """What comes of a random program, or of one that was saved."""
    if "saved" not in job:
        return check(job, coverage, say)
    data = job["saved"]
    verdict = judge(restored(data), data["index"], data["mode"])
    failure, answer = verdict.failure, {"cases": dict(verdict.cases)}
    if failure is None:
        return {**answer, "outcome": "refused" if verdict.refused else "same"}
    return {**answer, "outcome": "different", "way": failure.way, "problem": failure.problem}


def is_sticky(failure: Failure) -> bool:
    """Whether the process is of no use after this."""
    return any(text in failure.problem for text in STICKY)


def smaller(
    decisions: list[int], members: list[Program], job: Job, wanted: Failure
) -> list[Program]:
    """Fewer members, fewer decisions and smaller sizes that still fail alike."""
    stop = min(time.monotonic() + _seconds_to_shrink(job["mode"]), job.get("stop", math.inf))

    def fails(candidates: Sequence[Program]) -> bool:
        return is_same_failure(found_failure(candidates, job, stop), wanted)

    last = members[-1]
    alone = found_failure([last], job, stop)
    if alone is None:
        return [members[0], last] if fails([members[0], last]) else members
    wanted = alone  # another backend may come first

    def rebuilt(candidate: list[int]) -> Program:
        grown = with_sizes(_grown(RecordedChoices(candidate), job), last.sizes)
        return replace(grown, seed=last.seed, data=last.data)

    small = minimise(decisions, lambda candidate: fails([rebuilt(candidate)]), attempts=300)
    best = rebuilt(small) if fails([rebuilt(small)]) else last
    for name in best.free_sizes:
        for size in (1, *SIZES):
            less = with_sizes(best, {**best.sizes, name: size})
            if less.sizes[name] < best.sizes[name] and fails([less]):
                best = less
                break
    plain = replace(best, data="")
    return [plain if best.data and fails([plain]) else best]


_shrunk: list[str] = []
"""Modes of what this process has made smaller."""


def _seconds_to_shrink(mode: str) -> float:
    if mode != "cuda":
        return SHRINKING_SECONDS
    _shrunk.append(mode)
    return DEVICE_SHRINKING_SECONDS if len(_shrunk) <= MOST_SHRUNK else 0.0


def found_failure(members: Sequence[Program], job: Job, stop: float) -> Failure | None:
    """What goes wrong, if there is time to see."""
    if time.monotonic() > stop:
        return None
    try:
        return first_failure(members, job["index"], job["mode"])
    except UndecidedError:
        return None


def serve(mode: str, coverage: Coverage) -> None:
    """Answer jobs until there are no more."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what kernels print must not get between the answers
    if mode == "interpret":
        from tests.backends.triton.interpreter_worker import _patch as patch_interpreter

        patch_interpreter()
    if mode == "unlaunched":
        from tests.fuzzing.unlaunched import launch_nothing

        launch_nothing()
    if mode == "ptx":
        from tests.fuzzing.simulated import run_ptx

        run_ptx()
    if mode in GPU_MODES:
        expect_matrix_units()
        expect_device_memory()
        Clock.watch_triton()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    # What was imported stays: looking through it again and again took a tenth of the time.
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    print("ready", file=answers, flush=True)

    def say(answer: Job) -> None:
        print(json.dumps(answer), file=answers, flush=True)

    for line in sys.stdin:
        answer = answer_to(json.loads(line), coverage, say)
        is_last = any(text in answer.get("problem", "") for text in STICKY)
        say({**answer, "is_last": is_last})
        if is_last:
            os._exit(3)


if __name__ == "__main__":
    serve(sys.argv[1], read_coverage(Path(sys.argv[2])) if sys.argv[2] else Coverage())
