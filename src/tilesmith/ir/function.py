"""A device function: parameters, block and size symbols, and a body of parallel loops."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from tilesmith.diagnostics.location import UNKNOWN, SourceLocation
from tilesmith.ir.operation import Region
from tilesmith.ir.types import Extent
from tilesmith.ir.values import Value


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
