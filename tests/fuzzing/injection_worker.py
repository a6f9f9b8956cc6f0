"""Puts known bugs into the compiler, each in a process of its own, and looks for them.

Run as ``python -m tests.fuzzing.injection_worker LIMIT SEED [LOG]``: reads names of bugs, a line
each, and prints a JSON line for each, with the number of random programs it took (``tried``) and by
what it was noticed (``way``). What is known goes to the log, and is taken from it.
TRITON_INTERPRET must be set: it decides how triton is imported.
"""

from __future__ import annotations

import gc
import json
import re
import sys
import warnings
from pathlib import Path

import torch

from tests.fuzzing.children import Answer, Say, in_child
from tests.fuzzing.choices import RandomChoices
from tests.fuzzing.execution import Failure, first_failure
from tests.fuzzing.grades import CHECKPOINT, Grades
from tests.fuzzing.grow import grow_program
from tests.fuzzing.injections import INJECTIONS
from tests.fuzzing.last_injections import LAST_INJECTIONS
from tests.fuzzing.later_injections import LATER_INJECTIONS
from tests.fuzzing.more_injections import MORE_INJECTIONS
from tests.fuzzing.program import UndecidedError
from tests.fuzzing.variants import family

MEMBERS = 3
"""Shapes of each program beside its own."""
KNOWN = {**INJECTIONS, **MORE_INJECTIONS, **LATER_INJECTIONS, **LAST_INJECTIONS}


def run(number: int, seed: str, mode: str) -> Failure | None:
    """What goes wrong with a program; nothing where nothing can be said."""
    try:
        program = grow_program(RandomChoices(f"{seed}/{number}"))
        return first_failure(family(program, number, MEMBERS), number, mode)
    except UndecidedError:
        return None


def has_needed(needs: str, number: int, seed: str) -> bool:
    """Whether a program has what a bug may change: in its text, or among types and sizes."""
    program = grow_program(RandomChoices(f"{seed}/{number}"))
    types = [spec.dtype for spec in program.tensors]
    about = f"{types} {program.sizes} static_shapes={program.static_shapes}"
    return re.search(needs, program.source() + about) is not None


def find(name: str, numbers: range, grades: Grades, seed: str, say: Say) -> None:
    """Try programs with a bug until one goes wrong."""
    injection = KNOWN[name]
    injection.apply()
    for number in numbers:
        say({"tried": number + 1})
        if not has_needed(injection.needs, number, seed):
            continue
        if grades.is_right(number, injection.mode) is False:
            continue  # it would tell nothing
        failure = run(number, seed, injection.mode)
        if failure is not None:
            way = f"{failure.way.split()[0]}: {failure.problem.splitlines()[0][:90]}"
            say({"tried": number + 1, "way": way})
            return


def grade(name: str, limit: int, seed: str, grades: Grades) -> Answer:
    """How soon a bug is noticed, by a program that is right without it."""
    first = grades.tried(name)
    found: Answer = {"tried": first}

    def hear(answer: Answer) -> None:
        passed = answer["tried"] - 1
        if passed % CHECKPOINT == 0 and "way" not in answer:
            grades.set_tried(name, passed)

    while first < limit:
        numbers = range(first, limit)
        found, status = in_child(
            lambda say, numbers=numbers: find(name, numbers, grades, seed, say), hear
        )
        if status:
            found["way"] = f"the process died (status {status})"
        if "way" not in found:
            break
        if is_right(found["tried"] - 1, seed, KNOWN[name].mode, grades):
            return {"name": name, "is_caught": True, **found}
        first = found["tried"]
    return {"name": name, "is_caught": False, "tried": found["tried"]}


def is_right(number: int, seed: str, mode: str, grades: Grades) -> bool:
    """Whether a program goes well without any bug."""
    known = grades.is_right(number, mode)
    if known is None:
        answer, _ = in_child(lambda say: say({"is_right": run(number, seed, mode) is None}))
        known = answer.get("is_right", False)
        grades.set_right(number, mode, known)
    return known


def main() -> None:
    """Grade the bugs that are asked for."""
    from tests.backends.triton.interpreter_worker import _patch as patch_interpreter

    patch_interpreter()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    # As in the worker of random programs: what was imported is not looked through again and again.
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    limit, seed, *log = sys.argv[1:]
    for line in sys.stdin:
        name = line.strip()
        grades = Grades(Path(log[0]) if log else None, seed)
        found = grades.grade(name, int(limit))
        if found is None:
            found = grade(name, int(limit), seed, grades)
            grades.add(**found)
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
