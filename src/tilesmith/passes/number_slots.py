"""Numbers loops, accesses and atomics, which is how a Config names them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import count

from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.ops.control_flow import Grid, Loop
from tilesmith.ir.ops.memory import Atomic, Load, Store

_COUNTERS: dict[type[Operation], str] = {
    Grid: "grid",
    Loop: "loop",
    # Loads and stores share one list of a Config, ``indexing``.
    Load: "access",
    Store: "access",
    Atomic: "atomic",
}


def number_slots(function: Function) -> Function:
    """Give every loop and access its slot, in program order, outer loops before inner ones.

    Before::

        %a = load(%x, none, [%i]) {slot=-1, eviction=""} : f32[t]
        store(%out, %a, none, [%i]) {slot=-1}

    After::

        %a = load(%x, none, [%i]) {slot=0, eviction=""} : f32[t]
        store(%out, %a, none, [%i]) {slot=1}
    """
    counters = {name: count() for name in _COUNTERS.values()}
    return function.with_body(_number_region(function.body, counters))


def _number_region(region: Region, counters: Mapping[str, Iterator[int]]) -> Region:
    new_ops = tuple(_number_op(op, counters) for op in region.ops)
    return region.with_ops(new_ops)


def _number_op(op: Operation, counters: Mapping[str, Iterator[int]]) -> Operation:
    if isinstance(op, (Grid, Loop, Load, Store, Atomic)):
        slot = next(counters[_COUNTERS[type(op)]])
        if slot != op.slot:
            op = replace(op, slot=slot)
    return op.with_regions(tuple(_number_region(inner, counters) for inner in op.regions()))
