"""A device function: parameters, block and size symbols, and a body of parallel loops.

A ``Builder`` collects the ops of regions that are still open and gives them locations.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from tilesmith.diagnostics.location import UNKNOWN, SourceLocation
from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.types import Extent, Type, Value


@dataclass(frozen=True)
class Block:
    """A block-size symbol: the width of a tile axis.

    ``fixed`` blocks have one size (``block_size=`` in the source); the others take theirs from
    ``Config.block_sizes`` in the order of ``slot``.
    """

    name: str
    fixed: int | None = None
    slot: int | None = None
    extent: int | None = None
    """Most elements this axis ranges over, when known at trace time (a hint when dynamic)."""
    low: int = 1
    high: int | None = None
    loc: SourceLocation = field(default=UNKNOWN, repr=False, compare=False)


@dataclass(frozen=True)
class Size:
    """A runtime size used as a tile dimension; ``hint`` is its value at trace time."""

    name: str
    hint: int


@dataclass(frozen=True)
class Parameter:
    """One kernel parameter: a tensor, or a scalar read at launch time."""

    value: Value
    source: str
    """How the launcher finds it, e.g. ``x``, ``x.size(0)``, ``x.stride(1)``, ``alpha``."""

    @property
    def is_zeroed(self) -> bool:
        """Whether each launch makes it, cleared."""
        return self.source.startswith("torch.zeros(")


@dataclass(frozen=True, eq=False)
class Function:
    """The unit that passes transform and backends emit."""

    name: str
    parameters: tuple[Parameter, ...]
    blocks: tuple[Block, ...]
    sizes: tuple[Size, ...]
    body: Region
    tunables: tuple[tuple[str, Any], ...] = ()
    """Values of user tunables this trace was made with."""
    before: Function | None = None
    """What another launch computes first; its parameters are among these."""
    is_first: bool = False
    """Whether it is the ``before`` of another."""

    def block(self, name: str) -> Block:
        """The block symbol of that name."""
        return next(block for block in self.blocks if block.name == name)

    def is_block(self, symbol: str) -> bool:
        """Whether the symbol names a block (rather than a runtime size)."""
        return any(block.name == symbol for block in self.blocks)

    def find_parameter(self, name: str) -> Value | None:
        """The parameter value of that name, if there is one."""
        for parameter in self.parameters:
            if parameter.value.name == name:
                return parameter.value
        return None

    def hint(self, extent: Extent) -> int:
        """A constant, the size of a fixed block, or the trace-time value of a runtime size."""
        if isinstance(extent, int):
            return extent
        fixed = {block.name: block.fixed for block in self.blocks if block.fixed is not None}
        hints = {size.name: size.hint for size in self.sizes}
        return {**fixed, **hints}[extent]

    def with_body(self, body: Region) -> Function:
        """The same function with another body."""
        return self if body is self.body else replace(self, body=body)


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

    def drop_regions(self, depth: int) -> None:
        """Forget the innermost regions, with their ops, until ``depth`` are open."""
        del self._stack[depth:]

    def close_region(self, args: tuple[Value, ...] = ()) -> Region:
        """Stop collecting and hand over the region."""
        return Region(args, tuple(self._stack.pop()))
