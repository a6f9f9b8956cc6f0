"""A function and its schedule to LLVM IR and the loop nests it was made from."""

from __future__ import annotations

from tilesmith.analysis.effects import tensors_written
from tilesmith.artifacts import Artifact, LaunchParameter
from tilesmith.backends.cpu.grids import KernelEmitter, plan_function
from tilesmith.backends.cpu.print_nests import print_plan
from tilesmith.ir.function import Function, Parameter
from tilesmith.ir.types import TensorType
from tilesmith.passes.squeeze_unit_axes import squeeze_unit_axes
from tilesmith.schedule.schedule import Schedule

NAME = "cpu"


def emit(function: Function, schedule: Schedule) -> Artifact:
    """The artifact that runs ``function`` as ``schedule`` says."""
    units = [block.name for block in function.blocks if schedule.symbols[block.name] == 1]
    function = squeeze_unit_axes(function, units)
    grids = plan_function(function, schedule)
    name = f"tilesmith_{function.name}"
    return Artifact(
        name=name,
        source=print_plan(function, schedule, grids),
        parameters=tuple(map(_launch_parameter, function.parameters)),
        constexprs=(),
        grid=(),
        options={"written": tensors_written(function)},
        target=schedule.target,
        llvm=KernelEmitter(function, schedule, grids).emit(name),
    )


def _launch_parameter(parameter: Parameter) -> LaunchParameter:
    value = parameter.value
    is_tensor = isinstance(value.type, TensorType)
    return LaunchParameter(value.name, parameter.source, is_tensor, value.type.dtype.name)
