"""A backend in one file: plain PyTorch, tile by tile, for pointwise kernels and row reductions.

Tiles are cropped to what is valid, so masks do nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from typing_extensions import override

import tilesmith.exc as errors
from tilesmith.artifacts import Artifact
from tilesmith.backends.interface import Backend, launch_parameter
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.control_flow import Grid, Yield
from tilesmith.ir.ops.elementwise import Elementwise
from tilesmith.ir.ops.indexing import Arange, Full, Mask, TileIndex
from tilesmith.ir.ops.memory import Load, Store
from tilesmith.ir.ops.reduction import Reduce
from tilesmith.ir.ops.shape import Broadcast, ExpandDims, Reshape
from tilesmith.ir.types import Value
from tilesmith.schedule.rules import ScheduleRules, TargetedKernel
from tilesmith.schedule.schedule import Schedule
from tilesmith.schedule.space.fragments import BooleanFragment
from tilesmith.schedule.space.sizes import KernelSlots
from tilesmith.schedule.space.slots import Slot
from tilesmith.targets import Target

TARGET = Target("eager", "")
_SIGNS = {"sub": "-", "add": "+", "mul": "*", "div": "/"}
_REDUCTIONS = {"max": "amax", "min": "amin", "sum": "sum"}


class EagerRules(ScheduleRules):
    """Everything as for a target of which nothing is known, and one key of its own."""

    backend = "eager"
    option_keys = ("eager_backwards",)

    @override
    def slots(self, kernel: TargetedKernel) -> KernelSlots:
        backwards = Slot.make("eager_backwards", BooleanFragment())
        return KernelSlots(super().slots(kernel).lists, {"eager_backwards": backwards})


class _Emitter:
    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.lines: list[str] = []
        self.names: dict[Value, str] = {}
        self.depth = 1

    def name(self, value: Value) -> str:
        return self.names.setdefault(value, f"v{len(self.names)}")

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def grid(self, op: Grid) -> None:
        for begin, end, block, index in zip(op.begins, op.ends, op.blocks, op.body.args):
            size, last = self.schedule.symbols[block], f"int({self.name(end)})"
            steps = f"range(int({self.name(begin)}), {last}, {size})"
            if self.schedule.backend_options.get("eager_backwards"):
                steps = f"reversed({steps})"
            self.line(f"for first in {steps}:")
            self.depth += 1
            self.line(f"{self.name(index)} = torch.tensor(first)")
            self.line(f"{block} = torch.arange(first, min(first + {size}, {last}))")
        for inner in op.body.ops:
            self.emit(inner)
        self.depth -= len(op.blocks)

    def emit(self, op: Operation) -> None:
        if isinstance(op, Grid):
            self.grid(op)
        elif isinstance(op, Store):
            indices = ", ".join(map(self.name, op.indices))
            self.line(f"{self.name(op.tensor)}[{indices}] = {self.name(op.value)}")
        elif not isinstance(op, Yield):
            self.line(f"{self.name(op.results[0])} = {self.expression(op)}")

    def expression(self, op: Operation) -> str:
        rule = RULES.get(type(op))
        if rule is None:
            raise errors.BackendUnsupported(operation=op.name, backend="eager", loc=op.loc)
        return rule(op, *map(self.name, op.operand_values()))


def _reshape(op: Reshape, x: str) -> str:
    sizes = [-1 if dim.constant is None else dim.constant for dim in op.result.tile.shape]
    return f"{x}.reshape({sizes})"


def _elementwise(op: Elementwise, *args: str) -> str:
    sign = _SIGNS.get(op.fn)
    return f"torch.{op.fn}({args[0]})" if sign is None else f"{args[0]} {sign} {args[1]}"


RULES: dict[type[Operation], Callable[..., str]] = {
    Full: lambda op: f"torch.tensor({op.value})",
    TileIndex: lambda op, begin: op.block,
    Arange: lambda op: f"torch.arange({op.result.tile.shape[0].constant})",
    ExpandDims: lambda op, x: x + "".join(f".unsqueeze({axis})" for axis in op.axes),
    Reshape: _reshape,
    Mask: lambda op, x: x,
    Broadcast: lambda op, x: x,
    Load: lambda op, tensor, *indices: f"{tensor}[{', '.join(indices)}]",
    Reduce: lambda op, x: f"torch.{_REDUCTIONS[op.kind]}({x}, dim={op.axis})",
    Elementwise: _elementwise,
}
"""Torch expressions, from an op and the names of its operands."""


def emit(function: Function, schedule: Schedule) -> Artifact:
    """A module with one function of the kernel's tensors."""
    emitter = _Emitter(schedule)
    parameters = [emitter.name(parameter.value) for parameter in function.parameters]
    for op in function.body.ops:
        emitter.emit(op)
    head = f"import torch\n\n\ndef {function.name}({', '.join(parameters)}):\n"
    return Artifact(
        name=function.name,
        source=head + "\n".join(emitter.lines) + "\n",
        parameters=tuple(map(launch_parameter, function.parameters)),
        constexprs=(),
        grid=(),
        target=schedule.target,
        backend="eager",
    )


def launch(artifact: Artifact) -> Callable[..., None]:
    """The function of the emitted module."""
    module: dict[str, Any] = {}
    with torch.no_grad():
        exec(artifact.source, module)
    return module[artifact.name]


EAGER = Backend("eager", ("eager",), ("cpu",), EagerRules, emit, forms=("torch",), launch=launch)
