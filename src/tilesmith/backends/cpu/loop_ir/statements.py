"""Statements: nests and what they write; scalars, loops and branches around them; grids; kernels.

A nest computes an element for each of its writes in every step of its loops. Lengths of loops are
dimensions of tiles: products of numbers, blocks and runtime sizes. A block's length is its size,
or what is left of the range that the innermost loop over that block covers. A kernel assigns
scalars and runs grids; a grid runs its body once for each program.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from tilesmith.backends.cpu.loop_ir.elements import (
    Access,
    Element,
    Tensor,
    Tile,
    TilePlace,
    Variable,
)
from tilesmith.backends.cpu.loop_ir.whole_tiles import PackedTensor, WholeTile
from tilesmith.diagnostics.location import SourceLocation
from tilesmith.dtypes import DType
from tilesmith.ir.ops.reduction import ReduceKind
from tilesmith.ir.types import Shape
from tilesmith.schedule.schedule import CpuOptions
from tilesmith.targets import Target


@dataclass(frozen=True, eq=False)
class StoreElement:
    """Write an element to a tensor where the mask holds."""

    value: Element
    access: Access
    loc: SourceLocation

    @property
    def operands(self) -> tuple[Element, ...]:
        """What is written, then where."""
        return (self.value, *self.access.operands)


@dataclass(frozen=True, eq=False)
class UpdateElement:
    """Change an element of a tensor atomically; what was there goes to ``result``, if anywhere."""

    value: Element
    access: Access
    kind: str
    order: str
    expected: Element | None
    result: Variable | TilePlace | None
    loc: SourceLocation

    @property
    def operands(self) -> tuple[Element, ...]:
        """What is written, then where, the value to compare with, and whether."""
        extra = (part for part in (self.expected, self.access.mask) if part is not None)
        return (self.value, *self.access.indices, *extra)


@dataclass(frozen=True, eq=False)
class KeepElement:
    """Write an element of a tile to memory, for later statements.

    Attributes:
        target: scratch memory, or the place of a later store.
        is_own: whether it is kept as what it is, not as what a loop or branch makes of it; others
            in the same nest may use it then.
        is_stored_too: whether the store itself is in this nest, so that nothing is left to do.
    """

    value: Element
    target: TilePlace | Access
    is_own: bool
    is_stored_too: bool

    @property
    def operands(self) -> tuple[Element, ...]:
        """What is written."""
        return (self.value,)


@dataclass(frozen=True, eq=False)
class ReduceElement:
    """Take an element into an accumulator, whose result is written when its loop ends."""

    value: Element
    kind: ReduceKind
    dtype: DType
    """The result's."""
    target: Variable | TilePlace
    loc: SourceLocation

    @property
    def operands(self) -> tuple[Element, ...]:
        """What is taken in."""
        return (self.value,)


Write = StoreElement | UpdateElement | KeepElement | ReduceElement


class Form(Enum):
    """How a nest's loops are arranged."""

    ROWS = "rows"
    """Lanes along the innermost loop; reductions go along the lanes."""
    COLUMNS = "columns"
    """Lanes across the innermost loop, along which every column is reduced."""
    ONE_BY_ONE = "one by one"
    """No lanes: elements in row-major order."""


@dataclass(frozen=True)
class Layout:
    """The loops of a nest.

    Attributes:
        space: how long each loop is; loop 0 is the outermost, but for inner ones.
        vector_axis: the loop that lanes go along; -1 without.
        reduced_axis: in columns, the loop that is reduced; -1 elsewhere.
    """

    space: Shape
    form: Form
    vector_axis: int
    reduced_axis: int = -1

    @property
    def order(self) -> list[int]:
        """The loops from the outermost to the innermost."""
        inner = [axis for axis in (self.vector_axis, self.reduced_axis) if axis >= 0]
        return [axis for axis in range(len(self.space)) if axis not in inner] + inner


@dataclass(frozen=True, eq=False)
class Nest:
    """Loops over one space, with everything that is written in a step of them, in order.

    Attributes:
        lanes: elements in a step; the last step along the lanes is masked where fewer are left.
        unroll: steps at a time, each with accumulators of its own.
        may_stream: whether whole vectors go past the caches where they are aligned.
    """

    layout: Layout
    writes: tuple[Write, ...]
    lanes: int
    unroll: int
    may_stream: bool

    @property
    def operands(self) -> list[Element]:
        """The elements that are asked for in a step."""
        return [element for write in self.writes for element in write.operands]

    @property
    def kept(self) -> set[Element]:
        """The elements that are kept as what they are, and that other writes may use."""
        keeps = [write for write in self.writes if isinstance(write, KeepElement)]
        return {write.value for write in keeps if write.is_own}


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
