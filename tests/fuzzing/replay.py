"""Runs a random program again from its decisions and shows what goes wrong."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tests.fuzzing.choices import RecordedChoices
from tests.fuzzing.execution import ways
from tests.fuzzing.grow import grow_program
from tests.fuzzing.oracle import expected
from tests.fuzzing.program import Program


def rebuild(decisions: Sequence[int]) -> Program:
    """The program that follows from decisions."""
    return grow_program(RecordedChoices(decisions))


def replay(decisions: Sequence[int], index: int = 0, mode: str = "host") -> None:
    """Print each way to run the program and its problem; exit with 1 at the first one."""
    program = rebuild(decisions)
    write = sys.stdout.write
    write(program.source() + "\n")
    for way, find_problem in ways(program, expected(program), index, mode):
        problem = find_problem()
        write(f"{way}: {problem or 'as expected'}\n")
        if problem:
            sys.exit(1)
