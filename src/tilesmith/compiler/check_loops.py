"""Checks of traced top-level loops: each has an effect, and none needs what another writes."""

from __future__ import annotations

from tilesmith.analysis.effects import AliasGroup, alias_group, tensor_operands
from tilesmith.diagnostics import errors
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.control_flow import Grid
from tilesmith.ir.ops.memory import Atomic
from tilesmith.ir.traits import Trait
from tilesmith.ir.traversal import walk


def check_loops(function: Function) -> None:
    """Raise if a loop does nothing, or depends on an earlier one that runs at the same time."""
    written: dict[AliasGroup, Operation] = {}
    for grid in function.body.ops:
        if isinstance(grid, Grid):
            _check_grid(grid, written)


def _check_grid(grid: Grid, written: dict[AliasGroup, Operation]) -> None:
    accesses = [op for op in walk(grid.body) if tensor_operands(op)]
    writes = [op for op in accesses if Trait.WRITES in op.traits]
    if not writes:
        raise errors.EmptyDeviceLoopAfterDCE(loc=grid.loc)
    for op in accesses:
        for tensor in tensor_operands(op):
            earlier = written.get(alias_group(tensor))
            both_atomic = isinstance(op, Atomic) and isinstance(earlier, Atomic)
            if earlier is not None and not both_atomic:
                raise errors.LoopDependencyError(tensor=tensor.name, loc=op.loc)
    for op in writes:
        for tensor in tensor_operands(op):
            written.setdefault(alias_group(tensor), op)
