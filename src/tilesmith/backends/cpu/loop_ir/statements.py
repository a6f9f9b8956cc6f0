"""Statements: scalars, loops and branches around nests; grids of programs; whole kernels.

A kernel assigns scalars and runs grids; a grid runs its body once for each program.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from tilesmith.backends.cpu.loop_ir.elements import Element, Tensor, Tile, Variable
from tilesmith.backends.cpu.loop_ir.nests import Nest, StoreElement, UpdateElement
from tilesmith.backends.cpu.loop_ir.whole_tiles import PackedTensor, WholeTile
from tilesmith.diagnostics.location import SourceLocation
from tilesmith.schedule.schedule import CpuOptions
from tilesmith.targets import Target


class Readers(Enum):
    """Who reads a scalar: a printer writes it where it is read if that is one place nearby."""

    SEVERAL = "several, or something in another block, or later than memory may change"
    END_OF_BLOCK = "the end of its block"
    SCALAR = "one scalar, access to memory, loop or branch"
    TILE = "one tile"


@dataclass(frozen=True, eq=False)
class Assign:
    """Compute a scalar."""

    variable: Variable
    value: Element
    readers: Readers

    @property
    def loc(self) -> SourceLocation:
        """The user's line."""
        return self.variable.label.loc


@dataclass(frozen=True, eq=False)
class LoopAxis:
    """One loop: ``for index in range(begin, end, step)``.

    Attributes:
        step: by how much it grows; None for a block's size, or 1 without a block.
        block: whose tiles it goes over; empty for single positions.
        is_partial: whether the last tile may be shorter.
    """

    index: Variable
    begin: Variable
    end: Variable
    step: Variable | None
    block: str
    is_partial: bool


@dataclass(frozen=True, eq=False)
class Carried:
    """A scalar that changes from one iteration to the next.

    Attributes:
        start: what it begins as.
        inside: what it is in the body.
        result: what it is after the loop.
        following: what an iteration makes of it.
        is_last_use: whether nothing else reads ``start``.
        tested: what it is in the condition of a while; None elsewhere.
    """

    start: Variable
    inside: Variable
    result: Variable
    following: Variable
    is_last_use: bool
    tested: Variable | None = None


@dataclass(frozen=True, eq=False)
class For:
    """Sequential loops, one inside the other. Carried tiles lie in scratch memory."""

    axes: tuple[LoopAxis, ...]
    carried: tuple[Carried, ...]
    body: Block
    loc: SourceLocation


@dataclass(frozen=True, eq=False)
class While:
    """A loop of unknown length: ``condition`` computes ``is_open`` before every iteration."""

    carried: tuple[Carried, ...]
    condition: Block
    is_open: Variable
    body: Block
    loc: SourceLocation


@dataclass(frozen=True, eq=False)
class If:
    """A branch. Each result takes what the arm taken yields in its place."""

    condition: Variable
    then: Block
    otherwise: Block
    results: tuple[Variable, ...]
    yielded: tuple[tuple[Variable, ...], tuple[Variable, ...]]
    loc: SourceLocation


Statement = Assign | StoreElement | UpdateElement | Nest | WholeTile | For | While | If
Block = tuple[Statement, ...]


@dataclass(frozen=True, eq=False)
class Grid:
    """Programs that run in any order, on several threads.

    Attributes:
        axes: the loops whose positions are the programs.
        order: of these, the one that varies fastest first.
        has_chosen_order: whether the config says the order.
        tiles: scratch memory of a program.
        packed: tensors that are packed before the programs run.
        work: about how many elements one program computes.
    """

    axes: tuple[LoopAxis, ...]
    order: tuple[int, ...]
    has_chosen_order: bool
    tiles: tuple[Tile, ...]
    packed: tuple[PackedTensor, ...]
    body: Block
    work: int
    loc: SourceLocation


@dataclass(frozen=True, eq=False)
class Kernel:
    """A whole kernel: scalars and grids, one after the other.

    ``parameters`` come in the order of the launch; ``shows_lines`` says whether a printer quotes
    the user's lines.
    """

    name: str
    parameters: tuple[Tensor | Variable, ...]
    block_sizes: Mapping[str, int]
    target: Target
    options: CpuOptions
    body: tuple[Statement | Grid, ...]
    shows_lines: bool

    @property
    def grids(self) -> list[Grid]:
        """The grids, in order."""
        return [part for part in self.body if isinstance(part, Grid)]
