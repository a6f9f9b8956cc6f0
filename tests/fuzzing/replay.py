"""Runs a saved program again and shows what goes wrong.

``PYTHONPATH=src:. python -m tests.fuzzing.replay FILE.json [MODE]``; exits with 1 at the first
problem. ``FILE.jsonl:3`` is the third line of a file that has a program in each. MODE is that of
the file unless it is given: programs of a GPU (``cuda``) can be ``ptx``, ``unlaunched``, ``build``
or ``host`` elsewhere. Files of mode "interpret" need TRITON_INTERPRET=1 in the environment.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.fuzzing.choices import RecordedChoices
from tests.fuzzing.grow import grow_program
from tests.fuzzing.program import Program
from tests.fuzzing.runs import cases
from tests.fuzzing.saved_programs import read_saved, restored
from tests.fuzzing.threads import threads_for
from tests.fuzzing.ways import ways


def rebuild(decisions: Sequence[int]) -> Program:
    """The program that follows from decisions."""
    return grow_program(RecordedChoices(decisions))


def replay(data: Mapping[str, Any]) -> bool:
    """Print each way to run the program and its problem; True if there is none."""
    write = sys.stdout.write
    members = restored(data)
    write(members[0].source() + "\n")
    for case in cases(members):
        write(f"sizes {dict(case.program.sizes)} {case.program.data}\n")
        with threads_for(case.program, data["index"]):
            for way in ways(case, data["index"], data["mode"]):
                problem = way.find_problem()
                write(f"{way.name}: {problem or 'as expected'}\n")
                if problem:
                    return False
    return True


def read(place: str) -> dict[str, Any]:
    """A file, or a line of one."""
    file, _, number = place.partition(":")
    if not number:
        return read_saved(Path(file))
    return json.loads(Path(file).read_text().splitlines()[int(number) - 1])


def main(place: str, mode: str = "") -> int:
    """Run from the command line."""
    data = read(place)
    data["mode"] = mode or data["mode"]
    if data["mode"] == "interpret":
        from tests.backends.triton.interpreter_worker import _patch as patch_interpreter

        patch_interpreter()
    if data["mode"] == "unlaunched":
        from tests.fuzzing.unlaunched import launch_nothing

        launch_nothing()
    if data["mode"] == "ptx":
        from tests.fuzzing.simulated import run_ptx

        run_ptx()
    return 0 if replay(data) else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
