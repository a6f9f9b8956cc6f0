"""The launch grid of a function and the ``launch`` function of its module."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from tilesmith.artifacts import TensorDescription
from tilesmith.backends.source_writer import SourceWriter
from tilesmith.backends.triton.expressions import Expr, add, literal, multiply, subtract
from tilesmith.backends.triton.grid_barriers import split_at_barriers
from tilesmith.backends.triton.host_expressions import HostExpressions, ceiling_quotient
from tilesmith.backends.triton.program_ids import PERSISTENT, grid_order, is_xyz
from tilesmith.ir.function import Function
from tilesmith.ir.ops.control_flow import Grid
from tilesmith.schedule.schedule import Schedule

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
