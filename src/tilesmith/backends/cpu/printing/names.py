"""Names of values: the user's where there are any, each for one thing at a time."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator
from contextlib import contextmanager

from tilesmith.backends.cpu.printing.expressions import FUNCTIONS
from tilesmith.dtypes import DTYPES_BY_NAME
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.control_flow import Loop, While
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import Mask
from tilesmith.ir.ops.memory import Load
from tilesmith.ir.ops.rearrangement import Select
from tilesmith.ir.ops.reduction import Reduce
from tilesmith.ir.ops.shape import Broadcast, ExpandDims, Permute, Reshape
from tilesmith.ir.traversal import definitions, walk_function
from tilesmith.ir.values import Value

TRANSPARENT_OPS = (Mask, ExpandDims, Broadcast, Reshape, Permute, Select)
"""Ops that compute nothing: their elements are those of the operand."""
_RESERVED = frozenset(
    {*keyword.kwlist, *FUNCTIONS, *DTYPES_BY_NAME, "range", "reversed", "scratch", "inf", "nan"}
)
_REDUCTIONS = {
    "sum": "total", "prod": "product", "max": "largest", "min": "smallest",
    "argmax": "position", "argmin": "position", "any": "some", "all": "every",
}  # fmt: skip
_RESULTS = {
    "dot": "product", "scan": "running", "atomic": "previous", "sort": "in_order",
    "reduce_with": "combined", "scan_with": "running",
}  # fmt: skip
_LETTERS = "ijklpqrs"


class Names:
    """Hands out names, those of parameters first."""

    def __init__(self, function: Function) -> None:
        self._taken = set(_RESERVED)
        self._names: dict[Value, str] = {}
        self._definitions = definitions(function.body)
        self._hints = _borrowed_hints(function)
        for parameter in function.parameters:
            self.of(parameter.value)

    def of(self, value: Value) -> str:
        """The name of a value, its own for as long as the present scope lasts."""
        if value not in self._names:
            self._names[value] = self.fresh(self.suggest(value))
        return self._names[value]

    def share(self, value: Value, name: str) -> None:
        """Let a value go by the name of another one, which it takes the place of."""
        self._names[value] = name

    def hint(self, value: Value) -> str:
        """What the user calls a value; empty if it has no name."""
        op = self._definitions.get(value)
        while not value.name and value not in self._hints and isinstance(op, TRANSPARENT_OPS):
            value, op = op.x, self._definitions.get(op.x)
        return value.name or self._hints.get(value, "")

    def suggest(self, value: Value) -> str:
        """The user's name for a value, or one that says how it is made."""
        return self.hint(value) or self._invented(value)

    def fresh(self, hint: str) -> str:
        """The hint itself, or numbered when it is taken."""
        stem = re.sub(r"\W", "_", hint)
        name, counter = stem, 1
        while name in self._taken:
            name, counter = f"{stem}_{counter}", counter + 1
        self._taken.add(name)
        return name

    def letters(self, count: int) -> list[str]:
        """Names for the loops of a nest."""
        free = [letter for letter in _LETTERS if letter not in self._taken]
        return [self.fresh(letter) for letter in [*free, *"i" * count][:count]]

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Names given inside are free again after."""
        saved = set(self._taken), dict(self._names)
        yield
        self._taken, self._names = saved

    def _invented(self, value: Value) -> str:
        op = self._definitions.get(value)
        if isinstance(op, Reduce):
            return _REDUCTIONS[op.kind]
        if isinstance(op, Load):
            return f"{op.tensor.name}_value"
        if isinstance(op, Cast):
            return self.suggest(op.x)
        if isinstance(op, Elementwise):
            return f"{op.fn}_value" if len(op.args) == 1 else "t"
        return "carried" if op is None else _RESULTS.get(op.name, "t")


def _borrowed_hints(function: Function) -> dict[Value, str]:
    """Names for nameless values: of their views, and of what they become in a loop."""
    found: dict[Value, str] = {}
    for op in walk_function(function):
        if isinstance(op, TRANSPARENT_OPS) and op.result.name:
            found.setdefault(op.x, op.result.name)
        elif isinstance(op, (Loop, While)):
            found.update(_next_names(op))
    return found


def _next_names(op: Loop | While) -> Iterator[tuple[Value, str]]:
    carried = op.carried if isinstance(op, Loop) else op.body.args
    for arg, new in zip(carried, op.body.yielded):
        if arg.name and not new.name:
            yield new, f"new_{arg.name}"


def find_users(function: Function) -> dict[Value, list[Operation]]:
    """The ops that use each value, as often as they do."""
    users: dict[Value, list[Operation]] = {}
    for op in walk_function(function):
        for value in op.operand_values():
            users.setdefault(value, []).append(op)
    return users
