"""The artifact whose source is the IR text itself, for the launcher that interprets it."""

from __future__ import annotations

from tilesmith.artifacts import Artifact, LaunchParameter
from tilesmith.ir.function import Function, Parameter
from tilesmith.ir.printer import print_function
from tilesmith.ir.types import TensorType
from tilesmith.schedule.schedule import Schedule

NAME = "reference"


def emit(function: Function, schedule: Schedule) -> Artifact:
    """The function as text, with the block sizes of the schedule among the options."""
    return Artifact(
        name=function.name,
        source=print_function(function),
        parameters=tuple(map(_launch_parameter, function.parameters)),
        constexprs=(),
        grid=(),
        options={"symbols": dict(schedule.symbols)},
        target=schedule.target,
    )


def _launch_parameter(parameter: Parameter) -> LaunchParameter:
    value = parameter.value
    is_tensor = isinstance(value.type, TensorType)
    return LaunchParameter(value.name, parameter.source, is_tensor, value.type.dtype.name)
