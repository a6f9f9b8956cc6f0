"""A build function that looks at what its process has imported in the end."""

from __future__ import annotations

import sys

from tilesmith.store.outcome import Verdict
from tilesmith.tune.jobs import Program
from tilesmith.tune.runner.build import build_program


def build_and_look(program: Program) -> tuple[Verdict, bool]:
    """The verdict, and whether torch was loaded."""
    reply = build_program(program)
    return reply.verdict, "torch._C" in sys.modules
