"""A process that checks random programs: lines of JSON in and out.

A job is ``{"seed": ..., "index": ..., "mode": ...}``. The answer has ``outcome``: "same",
"undecided", "refused" (too large for a GPU in some way) or "different", then with the failure, the
decisions and a smaller program.
Run as ``python -m tests.fuzzing.worker MODE``; "interpret" needs TRITON_INTERPRET in the
environment, since that decides how triton is imported.
"""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
from typing import Any

import torch

from tests.fuzzing.choices import RandomChoices, RecordedChoices, minimise
from tests.fuzzing.execution import Failure, first_failure, is_same_failure, judge
from tests.fuzzing.grow import grow_program
from tests.fuzzing.program import UndecidedError

SHRINKING_SECONDS = 60
STICKY = ("illegal memory access", "misaligned", "launch failure", "illegal instruction")


def check(job: dict[str, Any]) -> dict[str, Any]:
    """Grow the program of a job, run it, make it smaller if it fails."""
    choices = RandomChoices(f"{job['seed']}/{job['index']}")
    program = grow_program(choices)
    try:
        verdict = judge(program, job["index"], job["mode"])
    except UndecidedError:
        return {"outcome": "undecided"}
    failure = verdict.failure
    if failure is None:
        return {"outcome": "refused" if verdict.refused else "same"}
    answer = {"outcome": "different", "way": failure.way, "problem": failure.problem}
    answer |= {"decisions": choices.taken, "source": program.source()}
    if not is_sticky(failure) and job.get("shrink", True):
        answer |= _smaller(choices.taken, job, failure)
    return answer


def is_sticky(failure: Failure) -> bool:
    """Whether the process is of no use after this."""
    return any(text in failure.problem for text in STICKY)


def _smaller(decisions: list[int], job: dict[str, Any], wanted: Failure) -> dict[str, Any]:
    stop = time.monotonic() + SHRINKING_SECONDS

    def is_failing(candidate: list[int]) -> bool:
        if time.monotonic() > stop:
            return False
        try:
            found = first_failure(
                grow_program(RecordedChoices(candidate)), job["index"], job["mode"]
            )
        except UndecidedError:
            return False
        return is_same_failure(found, wanted)

    small = minimise(decisions, is_failing)
    program = grow_program(RecordedChoices(small))
    return {"decisions": small, "source": program.source(), "sizes": dict(program.sizes)}


def serve(mode: str) -> None:
    """Answer jobs until there are no more."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what kernels print must not get between the answers
    if mode == "interpret":
        from tests.backends.triton.interpreter_worker import _patch as patch_interpreter

        patch_interpreter()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        answer = check(json.loads(line))
        print(json.dumps(answer), file=answers, flush=True)
        if any(text in answer.get("problem", "") for text in STICKY):
            os._exit(3)


if __name__ == "__main__":
    serve(sys.argv[1])
