"""What decides where a program goes and what it touches: indices, masks, bounds, conditions."""

from __future__ import annotations

from collections.abc import Iterator

from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.control_flow import Grid, GroupBarrier, If, Loop, While
from tilesmith.ir.ops.memory import Atomic, Load, Store
from tilesmith.ir.traversal import walk_function
from tilesmith.ir.types import Value


def needed_values(function: Function) -> frozenset[Value]:
    """Values that accesses and control flow depend on, and tensors that such values are loaded
    from."""
    ops = list(walk_function(function))
    needed = {value for op in ops for value in _roots(op)}
    size = -1
    # Until nothing is added: carried values lead back to the end of their loop.
    while len(needed) != size:
        size = len(needed)
        for op in reversed(ops):
            needed.update(_behind(op, needed))
    return frozenset(needed)


def _roots(op: Operation) -> Iterator[Value]:
    if isinstance(op, (Load, Store, Atomic)):
        yield from op.indices
        yield from (v for v in (op.mask, getattr(op, "bases", None)) if v is not None)
    elif isinstance(op, (Grid, Loop)):
        yield from (*op.begins, *op.ends)
        yield from op.steps if isinstance(op, Loop) else ()
    elif isinstance(op, If):
        yield op.condition
    elif isinstance(op, While):
        yield from (*op.condition.yielded, *op.init, *op.body.yielded)
    elif isinstance(op, GroupBarrier):
        yield from op.operand_values()


def _behind(op: Operation, needed: set[Value]) -> Iterator[Value]:
    """What the needed results of an op depend on."""
    if isinstance(op, Loop):
        states = zip(op.results, op.carried, op.init, op.body.yielded)
        for state in states:
            if not needed.isdisjoint(state):
                yield from state
    elif isinstance(op, If):
        for result, first, second in zip(op.results, op.then.yielded, op.otherwise.yielded):
            if result in needed:
                yield from (first, second)
    elif isinstance(op, (Store, Atomic)) and op.tensor in needed:
        yield op.value
    elif not needed.isdisjoint(op.results):
        yield from op.operand_values()
        for region in op.regions():
            yield from region.yielded
