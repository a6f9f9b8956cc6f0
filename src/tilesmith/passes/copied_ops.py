"""Ops written again over tiles of other shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.types import Type
from tilesmith.ir.values import Value


class CopiedOps:
    """Ops written again over other tiles. ``values`` maps old values to new ones."""

    def __init__(
        self,
        values: dict[Value, Value],
        retype: Callable[[Value], Type],
        adapt: Callable[[Operation], Operation],
    ) -> None:
        self.values = values
        self._retype = retype
        self._adapt = adapt

    def write(self, ops: Iterable[Operation]) -> tuple[Operation, ...]:
        """The same ops of new values, each adapted and its results retyped."""
        return tuple(map(self._write, ops))

    def _write(self, op: Operation) -> Operation:
        copy = self._adapt(op).with_operands(lambda value: self.values.get(value, value))
        copy = copy.with_regions(tuple(map(self._write_region, op.regions())))
        return replace(copy, results=tuple(map(self._define, op.results)))

    def _write_region(self, region: Region) -> Region:
        args = tuple(map(self._define, region.args))
        return Region(args, self.write(region.ops))

    def _define(self, value: Value) -> Value:
        self.values[value] = value.like(self._retype(value))
        return self.values[value]
