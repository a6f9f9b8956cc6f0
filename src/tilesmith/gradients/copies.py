"""Copies of ops: what the forward computes is computed again by the backward."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.types import Value


def clone_ops(ops: Iterable[Operation], mapping: dict[Value, Value]) -> list[Operation]:
    """Copies of ops with fresh results; ``mapping`` is extended with old to new values."""

    def lookup(value: Value) -> Value:
        return mapping.get(value, value)

    return [_clone(op, mapping, lookup) for op in ops]


def _clone(
    op: Operation, mapping: dict[Value, Value], lookup: Callable[[Value], Value]
) -> Operation:
    copy = op.with_operands(lookup)
    inner: list[Region] = []
    for region in op.regions():
        args = tuple(arg.like() for arg in region.args)
        mapping.update(zip(region.args, args))
        inner.append(Region(args, tuple(clone_ops(region.ops, mapping))))
    results = tuple(value.like() for value in op.results)
    mapping.update(zip(op.results, results))
    return replace(copy.with_regions(tuple(inner)), results=results)
