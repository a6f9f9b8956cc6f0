"""Appends ops to nested regions under construction and gives them locations."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tilesmith.diagnostics.location import UNKNOWN, SourceLocation
from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.types import Type
from tilesmith.ir.values import Value

Op = TypeVar("Op", bound=Operation)


class Builder:
    """A stack of open regions. ``locate`` tells where the user's code is right now."""

    def __init__(self, locate: Callable[[], SourceLocation] = lambda: UNKNOWN) -> None:
        self.locate = locate
        self._stack: list[list[Operation]] = [[]]

    @property
    def depth(self) -> int:
        """Number of open regions, the outermost included."""
        return len(self._stack)

    def insert(self, op: Op) -> Op:
        """Append a finished op."""
        self._stack[-1].append(op)
        return op

    def create(self, cls: type[Op], result_type: Type, **fields: object) -> Value:
        """Append an op with one result of ``result_type`` and return that result."""
        loc = self.locate()
        value = Value(result_type, "", loc)
        self.insert(cls(results=(value,), loc=loc, **fields))  # type: ignore[arg-type]
        return value

    def effect(self, cls: type[Op], **fields: object) -> Op:
        """Append an op without results."""
        return self.insert(cls(loc=self.locate(), **fields))  # type: ignore[arg-type]

    def definition_of(self, value: Value) -> Operation | None:
        """The op of a region still open that gives a value, if there is one."""
        ops = (op for region in self._stack for op in region)
        return next((op for op in ops if any(result is value for result in op.results)), None)

    def open_region(self) -> None:
        """Start collecting ops of a nested region."""
        self._stack.append([])

    def close_region(self, args: tuple[Value, ...] = ()) -> Region:
        """Stop collecting and hand over the region."""
        return Region(args, tuple(self._stack.pop()))
