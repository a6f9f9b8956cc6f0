"""Puts known bugs into the compiler, each in a process of its own, and looks for them.

Run as ``python -m tests.fuzzing.injection_worker LIMIT SEED NAME...``: prints a JSON line for each
bug, with the number of random programs it took (``tried``) and by what it was noticed (``way``).
TRITON_INTERPRET must be set: it decides how triton is imported.
"""

from __future__ import annotations

import json
import os
import re
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch

from tests.fuzzing.choices import RandomChoices
from tests.fuzzing.execution import Failure, first_failure
from tests.fuzzing.grow import grow_program
from tests.fuzzing.injections import INJECTIONS
from tests.fuzzing.later_injections import LATER_INJECTIONS
from tests.fuzzing.more_injections import MORE_INJECTIONS
from tests.fuzzing.program import UndecidedError
from tests.fuzzing.variants import family

MEMBERS = 3
"""Shapes of each program beside its own."""
KNOWN = {**INJECTIONS, **MORE_INJECTIONS, **LATER_INJECTIONS}
Answer = dict[str, Any]


def run(number: int, seed: str, mode: str) -> Failure | None:
    """What goes wrong with a program; nothing where nothing can be said."""
    try:
        program = grow_program(RandomChoices(f"{seed}/{number}"))
        return first_failure(family(program, number, MEMBERS), number, mode)
    except UndecidedError:
        return None


def has_needed(needs: str, number: int, seed: str) -> bool:
    """Whether a program has what a bug may change: in its text, or among types of its tensors."""
    program = grow_program(RandomChoices(f"{seed}/{number}"))
    text = program.source() + str([spec.dtype for spec in program.tensors])
    return re.search(needs, text) is not None


def find(name: str, numbers: range, seed: str, say: Callable[[Answer], None]) -> None:
    """Try programs with a bug until one goes wrong."""
    injection = KNOWN[name]
    injection.apply()
    for number in numbers:
        say({"tried": number + 1})
        if not has_needed(injection.needs, number, seed):
            continue
        failure = run(number, seed, injection.mode)
        if failure is not None:
            way = f"{failure.way.split()[0]}: {failure.problem.splitlines()[0][:90]}"
            say({"tried": number + 1, "way": way})
            return


def in_child(work: Callable[[Callable[[Answer], None]], None]) -> tuple[Answer, int]:
    """The last thing a forked process says, and how it ended."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        torch.set_num_threads(1)
        warnings.simplefilter("ignore")
        with os.fdopen(writer, "w") as answers:
            work(lambda answer: print(json.dumps(answer), file=answers, flush=True))
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answers:
        lines = answers.read().splitlines()
    _, status = os.waitpid(child, 0)
    return (json.loads(lines[-1]) if lines else {}), status


def grade(name: str, limit: int, seed: str) -> Answer:
    """How soon a bug is noticed, by a program that is right without it."""
    first = 0
    found: Answer = {"tried": 0}
    while first < limit:
        numbers = range(first, limit)
        found, status = in_child(lambda say, numbers=numbers: find(name, numbers, seed, say))
        if status:
            found["way"] = f"the process died (status {status})"
        if "way" not in found:
            break
        if is_right(found["tried"] - 1, seed, KNOWN[name].mode):
            return {"name": name, "is_caught": True, **found}
        first = found["tried"]
    return {"name": name, "is_caught": False, "tried": found["tried"]}


def is_right(number: int, seed: str, mode: str) -> bool:
    """Whether a program goes well without any bug."""
    answer, _ = in_child(lambda say: say({"is_right": run(number, seed, mode) is None}))
    return answer.get("is_right", False)


def main() -> None:
    """Grade the bugs named on the command line."""
    from tests.backends.triton.interpreter_worker import _patch as patch_interpreter

    patch_interpreter()
    limit, seed, *names = sys.argv[1:]
    for name in names:
        sys.stdout.write(json.dumps(grade(name, int(limit), seed)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
