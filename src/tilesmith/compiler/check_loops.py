"""Checks of traced top-level loops: each has an effect, and none needs what another writes."""

from __future__ import annotations

from tilesmith.analysis.effects import AliasGroup, alias_group, is_pinned, tensor_operands
from tilesmith.diagnostics import errors
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation, Trait
from tilesmith.ir.ops.control_flow import Grid, GridBarrier
from tilesmith.ir.ops.memory import Atomic
from tilesmith.ir.traversal import walk

_MEMORY = Trait.READS | Trait.WRITES


def check_loops(function: Function) -> None:
    """Raise if a loop does nothing, or depends on an earlier one that runs at the same time."""
    written: dict[AliasGroup, Operation] = {}
    for op in function.body.ops:
        if isinstance(op, GridBarrier):
            written.clear()
        elif isinstance(op, Grid):
            _check_grid(op, written)
        else:
            _check_access(op, written)


def _check_grid(grid: Grid, written: dict[AliasGroup, Operation]) -> None:
    ops = list(walk(grid.body))
    accesses = [op for op in ops if tensor_operands(op) and (_MEMORY & op.traits)]
    writes = [op for op in accesses if Trait.WRITES in op.traits]
    if not writes and not any(map(is_pinned, ops)):
        raise errors.EmptyDeviceLoopAfterDCE(loc=grid.loc)
    for op in accesses:
        _check_access(op, written)
    for op in writes:
        for tensor in tensor_operands(op):
            written.setdefault(alias_group(tensor), op)


def _check_access(op: Operation, written: dict[AliasGroup, Operation]) -> None:
    for tensor in tensor_operands(op):
        earlier = written.get(alias_group(tensor))
        both_atomic = isinstance(op, Atomic) and isinstance(earlier, Atomic)
        if earlier is not None and not both_atomic:
            raise errors.LoopDependencyError(tensor=tensor.name, loc=op.loc)
