"""The artifact whose source is the IR text itself, for the launcher that interprets it."""

from __future__ import annotations

from tilesmith.artifacts import Artifact
from tilesmith.backends.interface import Backend, launch_parameter
from tilesmith.ir.function import Function
from tilesmith.ir.printer import print_function
from tilesmith.schedule.rules import ScheduleRules
from tilesmith.schedule.schedule import Schedule

NAME = "reference"


def emit(function: Function, schedule: Schedule) -> Artifact:
    """The function as text, with the block sizes of the schedule among the options."""
    return Artifact(
        name=function.name,
        source=print_function(function),
        parameters=tuple(map(launch_parameter, function.parameters)),
        constexprs=(),
        grid=(),
        options={"symbols": dict(schedule.symbols)},
        target=schedule.target,
        backend=NAME,
    )


# It runs on every device, but only where it is asked for: it compiles for no target of its own.
REFERENCE_BACKEND = Backend(NAME, (), ("cpu", "cuda", "meta"), ScheduleRules, emit)
