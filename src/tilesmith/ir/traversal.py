"""Walking and rewriting nested regions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.values import Value

Rewrite = Callable[[Operation], "Operation | Iterable[Operation] | None"]
"""What to put in an op's place: itself, several ops, or nothing (None)."""


def walk(region: Region) -> Iterator[Operation]:
    """All ops of a region, outer before inner, in program order."""
    for op in region.ops:
        yield op
        for inner in op.regions():
            yield from walk(inner)


def walk_function(function: Function) -> Iterator[Operation]:
    """All ops of a function."""
    return walk(function.body)


def definitions(region: Region) -> dict[Value, Operation]:
    """The op that defines each result in the region, nested ones included."""
    return {value: op for op in walk(region) for value in op.results}


def count_uses(region: Region) -> dict[Value, int]:
    """How often each value is an operand."""
    uses: dict[Value, int] = {}
    for op in walk(region):
        for value in op.operand_values():
            uses[value] = uses.get(value, 0) + 1
    return uses


class Substitution:
    """A growing map from old to new values, applied while rebuilding regions in program order."""

    def __init__(self) -> None:
        self._map: dict[Value, Value] = {}

    def __setitem__(self, old: Value, new: Value) -> None:
        self._map[old] = new

    def __call__(self, value: Value) -> Value:
        """The value that now stands for ``value``."""
        while value in self._map:
            value = self._map[value]
        return value


def rewrite_region(region: Region, rewrite: Rewrite, substitution: Substitution) -> Region:
    """Rebuild a region: substitute operands, rebuild nested regions, then ``rewrite`` each op.

    Returns the same object when nothing changed.
    """
    new_ops: list[Operation] = []
    for op in region.ops:
        current = op.with_operands(substitution)
        inner = tuple(rewrite_region(r, rewrite, substitution) for r in current.regions())
        current = current.with_regions(inner)
        replacement = rewrite(current)
        if isinstance(replacement, Operation):
            new_ops.append(replacement)
        elif replacement is not None:
            new_ops.extend(replacement)
    if len(new_ops) == len(region.ops) and all(a is b for a, b in zip(new_ops, region.ops)):
        return region
    return Region(region.args, tuple(new_ops))


def rewrite_function(
    function: Function, rewrite: Rewrite, substitution: Substitution | None = None
) -> Function:
    """Rebuild a function's body with ``rewrite``."""
    return function.with_body(
        rewrite_region(function.body, rewrite, substitution or Substitution())
    )


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
