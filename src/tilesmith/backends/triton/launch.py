"""The launch grid of a function and the ``launch`` function of its module.

Both are Python over the names of parameters: device values that the grid needs are computed again
on the host.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from tilesmith.artifacts import TensorDescription
from tilesmith.backends.source_writer import SourceWriter
from tilesmith.backends.triton.emission.expressions import (
    Expr,
    add,
    binary,
    call,
    literal,
    multiply,
    subtract,
)  # fmt: skip
from tilesmith.backends.triton.ops.program_ids import (
    PERSISTENT,
    grid_order,
    is_xyz,
    split_at_barriers,
)
from tilesmith.diagnostics.catalogue import InternalError
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.control_flow import Grid
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import BlockSize, Full
from tilesmith.ir.types import Value
from tilesmith.schedule.schedule import Schedule

_INFIX = {"floordiv": "//", "mod": "%"}
_CALLS = {"maximum": "max", "minimum": "min"}
_ARITHMETIC = {"add": add, "sub": subtract, "mul": multiply}


class HostExpressions:
    """Translates scalar values of one function."""

    def __init__(
        self,
        parameter_names: Mapping[Value, str],
        definitions: Mapping[Value, Operation],
        symbols: Mapping[str, int],
    ) -> None:
        self._names = parameter_names
        self._definitions = definitions
        self._symbols = symbols
        self.used: set[Value] = set()
        """Parameters that occur in what was translated."""

    def is_known(self, value: Value) -> bool:
        """Whether the value can be computed before the launch."""
        op = self._definitions.get(value)
        if value in self._names or isinstance(op, (Full, BlockSize)):
            return True
        is_arithmetic = isinstance(op, Cast) or (
            isinstance(op, Elementwise) and op.fn in {*_ARITHMETIC, *_INFIX, *_CALLS}
        )
        return op is not None and is_arithmetic and all(map(self.is_known, op.operand_values()))

    def scalar(self, value: Value) -> Expr:
        """The value as an expression over parameters."""
        if value in self._names:
            self.used.add(value)
            return Expr(self._names[value])
        op = self._definitions.get(value)
        if isinstance(op, Full):
            return literal(op.value)
        if isinstance(op, BlockSize):
            return literal(self._symbols[op.block])
        if isinstance(op, Cast):
            return self.scalar(op.x)
        if isinstance(op, Elementwise):
            return self._elementwise(op)
        raise InternalError(
            loc=value.loc, problem="a grid bound known on the device only needs a persistent launch"
        )

    def _elementwise(self, op: Elementwise) -> Expr:
        args = [self.scalar(arg) for arg in op.args]
        if op.fn in _ARITHMETIC:
            return _ARITHMETIC[op.fn](*args)
        if op.fn in _INFIX:
            return binary(_INFIX[op.fn], *args)
        if op.fn in _CALLS:
            return call(_CALLS[op.fn], *args)
        raise InternalError(loc=op.loc, problem=f"{op.fn} in a grid bound")


def ceiling_quotient(extent: Expr, size: int) -> Expr:
    """``cdiv(extent, size)``, computed already where both are known."""
    if isinstance(extent.constant, int):
        return literal(max(-(-extent.constant // size), 0))
    return extent if size == 1 else call("cdiv", extent, size)


_MODULE_NAMES = {"cdiv": "triton.cdiv", "next_power_of_2": "triton.next_power_of_2"}


def launch_grid(function: Function, schedule: Schedule, host: HostExpressions) -> tuple[str, ...]:
    """The number of programs along each launch axis, as expressions over parameters."""
    grids = [op for op in function.body.ops if isinstance(op, Grid)]
    if is_xyz(schedule.pid_type, grids):
        order = grid_order(grids[0], schedule.grids.get(grids[0].slot))
        return tuple(str(_axis_count(grids[0], axis, schedule, host)) for axis in order)
    if schedule.pid_type not in PERSISTENT:
        return (str(_num_tiles(grids, schedule, host)),)
    reserved = schedule.reserved_sms
    sms = Expr(f"max(num_sms - {reserved}, 1)" if reserved else "num_sms")
    programs = multiply(sms, literal(schedule.num_sm_multiplier))
    if not all(host.is_known(bound) for op in grids for bound in (*op.begins, *op.ends)):
        return (str(programs),)
    # No more programs than tiles: without tiles, a program's pipeline prologue must not run either.
    phases = [
        [op for op in phase if isinstance(op, Grid)]
        for phase in split_at_barriers(function.body.ops)
    ]
    each = (str(_num_tiles(phase, schedule, host)) for phase in phases if phase)
    counts = list(dict.fromkeys(each))
    tiles = counts[0] if len(counts) == 1 else f"max({', '.join(counts)})"
    return (f"min({programs}, {tiles})",)


def _num_tiles(grids: list[Grid], schedule: Schedule, host: HostExpressions) -> Expr:
    """Tiles of all grids together."""
    total = literal(0)
    for op in grids:
        tiles = literal(1)
        for axis in range(len(op.blocks)):
            tiles = multiply(tiles, _axis_count(op, axis, schedule, host))
        total = add(total, tiles)
    return total


def _axis_count(op: Grid, axis: int, schedule: Schedule, host: HostExpressions) -> Expr:
    extent = subtract(host.scalar(op.ends[axis]), host.scalar(op.begins[axis]))
    block = op.blocks[axis]
    return ceiling_quotient(extent, schedule.symbols[block] if block else 1)


def in_module(expression: str) -> str:
    """A launch expression with the names an emitted module has."""
    return re.sub(r"\b(cdiv|next_power_of_2)\b", lambda m: _MODULE_NAMES[m[0]], expression)


class LaunchFunction:
    """Writes ``launch``: the plain Triton call that runs the kernel on torch tensors."""

    def __init__(
        self,
        name: str,
        parameters: Sequence[str],
        first_tensor: str,
        descriptions: Sequence[TensorDescription] = (),
        least_sms: int = 0,
    ) -> None:
        self._name = name
        self._descriptions = descriptions
        self._parameters = parameters
        self._first_tensor = first_tensor
        self._least_sms = least_sms

    def write(
        self,
        writer: SourceWriter,
        grid: tuple[str, ...],
        constexprs: Sequence[tuple[str, str]],
        options: dict[str, Any],
    ) -> None:
        """Append the function's lines."""
        described = [description.name for description in self._descriptions]
        arguments = [*self._parameters, *described]
        arguments += [f"{k}={in_module(v)}" for k, v in constexprs]
        arguments += [f"{k}={v!r}" for k, v in options.items()]
        sizes = ", ".join(map(in_module, grid))
        with writer.block("def launch", self._parameters):
            named = "num_sms" in " ".join([*grid, *(value for _, value in constexprs)])
            if named or self._least_sms:
                writer.line(
                    f"device = torch.cuda.get_device_properties({self._first_tensor}.device)"
                )
                writer.line("num_sms = device.multi_processor_count")
            if self._least_sms:
                # The module may have been taken to a smaller device than it was made for.
                with writer.block(f"if num_sms < {self._least_sms}"):
                    needs = f"its programs wait for each other: {self._least_sms} multiprocessors"
                    writer.line(f'raise RuntimeError("{needs} are needed")')
            for description in self._descriptions:
                writer.line(f"{description.name} = {description.call}")
            trailing = "," if len(grid) == 1 else ""
            writer.line(f"grid = ({sizes}{trailing})")
            writer.statement(f"{self._name}[grid]", arguments)
