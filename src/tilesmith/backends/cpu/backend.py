"""A function and its schedule to LLVM IR and the loop nests it was made from."""

from __future__ import annotations

from functools import partial

import tilesmith.exc as errors
from tilesmith.analysis.effects import tensors_written
from tilesmith.artifacts import Artifact, LazyText
from tilesmith.backends.cpu.emission.kernel import emit_kernel
from tilesmith.backends.cpu.loop_ir.verifier import verify_kernel
from tilesmith.backends.cpu.lowering.kernel import lower_kernel
from tilesmith.backends.cpu.planning.one_column import sum_rows
from tilesmith.backends.cpu.planning.single_positions import look_up_single_elements
from tilesmith.backends.cpu.printing.kernel import print_kernel
from tilesmith.backends.cpu.schedule.rules import CpuRules
from tilesmith.backends.interface import Backend, TuningNeeds, launch_parameter
from tilesmith.interpreter.effects import refusal
from tilesmith.ir.function import Function
from tilesmith.ir.ops.control_flow import GroupBarrier
from tilesmith.ir.ops.foreign import Assert, Breakpoint, InlineAsm, InlineTriton
from tilesmith.ir.traversal import walk_function
from tilesmith.schedule.schedule import Schedule

NAME = "cpu"
REFUSED_OPS = (Assert, Breakpoint, GroupBarrier, InlineTriton, InlineAsm)
"""Ops that native code has an error for."""


def emit(function: Function, schedule: Schedule) -> Artifact:
    """The artifact that runs ``function`` as ``schedule`` says."""
    _refuse(function)
    kernel = lower_kernel(function, schedule)
    if schedule.backend_options.get("is_verified"):
        verify_kernel(kernel)
    name = f"tilesmith_{function.name}"
    return Artifact(
        name=name,
        source="",
        parameters=tuple(map(launch_parameter, function.parameters)),
        constexprs=(),
        grid=(),
        options={"written": tensors_written(function)},
        target=schedule.target,
        backend=NAME,
        llvm=emit_kernel(kernel, name),
        loops=LazyText(partial(print_kernel, kernel)),
    )


def _refuse(function: Function) -> None:
    for op in walk_function(function):
        if isinstance(op, Breakpoint):
            raise errors.BreakpointInDeviceLoopRequiresInterpret(loc=op.loc)
        if isinstance(op, Assert):
            raise errors.BackendUnsupported(operation="`assert`", backend=NAME, loc=op.loc)
        if isinstance(op, GroupBarrier):
            # Threads run one program after the other: one that waits keeps others from coming.
            operation = "a barrier of programs of one grid"
            raise errors.BackendUnsupported(operation=operation, backend=NAME, loc=op.loc)
        if isinstance(op, (InlineTriton, InlineAsm)):
            raise refusal(op, NAME)


CPU_BACKEND = Backend(
    NAME,
    target_kinds=("cpu",),
    device_types=("cpu",),
    rules=CpuRules,
    emit=emit,
    prepare=lambda function, _: look_up_single_elements(sum_rows(function)),
    refused_ops=REFUSED_OPS,
    crops_tiles=True,
    forms=("loops", "llvm", "assembly", "object"),
    tuning=TuningNeeds(preloads=("llvmlite.binding",)),
)
