"""Elements: what one step of a loop nest computes, as a graph of frozen records.

An element belongs to a tile and a position in it, given by the loops around it. It has as many
lanes as the nest; nothing here depends on how many. Identity is the record: an element that two
others use is computed once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from tilesmith.diagnostics.location import SourceLocation
from tilesmith.dtypes import DType
from tilesmith.ir.types import Shape, TensorType


@dataclass(frozen=True)
class Label:
    """What the user calls a value and where it is made.

    ``hint`` is the user's name, empty if there is none; ``stem`` what a name may begin with.
    """

    hint: str
    stem: str
    loc: SourceLocation


@dataclass(frozen=True, eq=False)
class Tensor:
    """A tensor parameter: memory of the caller."""

    label: Label
    type: TensorType


@dataclass(frozen=True, eq=False)
class Variable:
    """A scalar. It is assigned once in the block that defines it."""

    label: Label
    dtype: DType


@dataclass(frozen=True, eq=False)
class Tile:
    """A tile in scratch memory of its program.

    ``held_as`` is the type its elements have in memory. A ``is_padded`` tile is written by products
    in whole register blocks, which go past the ends of rows.
    """

    label: Label
    dtype: DType
    shape: Shape
    held_as: DType
    is_padded: bool


@dataclass(frozen=True)
class LoopIndex:
    """The index of the nest's loop of that number."""

    axis: int


@dataclass(frozen=True)
class Fixed:
    """A position known in advance."""

    position: int


@dataclass(frozen=True)
class Digit:
    """The position along ``shape[axis]`` of the element at ``positions`` of ``source``."""

    positions: tuple[Position, ...]
    source: Shape
    shape: Shape
    axis: int


@dataclass(frozen=True)
class Indirect:
    """The position that an element of integers says."""

    element: Element


Position = LoopIndex | Fixed | Digit | Indirect
Positions = tuple[Position, ...]


@dataclass(frozen=True)
class TilePlace:
    """One element of a tile in scratch memory."""

    tile: Tile
    positions: Positions


@dataclass(frozen=True, eq=False)
class Unread:
    """A tile that nobody reads and that has no memory."""

    label: Label


@dataclass(frozen=True, eq=False)
class Access:
    """One element of a tensor: its indices, where it has one an address of its own, and a mask.

    What ``base`` says is an address that takes the place of the tensor's. ``is_confined``: nothing
    is written outside of the tensor's memory, whatever the indices are.
    """

    tensor: Tensor
    indices: tuple[Element, ...]
    base: Element | None = None
    mask: Element | None = None
    is_confined: bool = False

    @property
    def operands(self) -> tuple[Element, ...]:
        """All elements needed to know where and whether."""
        extra = (part for part in (self.base, self.mask) if part is not None)
        return (*self.indices, *extra)


@dataclass(frozen=True, eq=False)
class Element:
    """One element of a tile, computed from others; ``axes`` are the loops that it changes with."""

    label: Label
    dtype: DType
    axes: frozenset[int]
    operands: tuple[Element, ...]

    @property
    def x(self) -> Element:
        """The only operand, or the last one."""
        return self.operands[-1]


@dataclass(frozen=True, eq=False)
class Number(Element):
    """A constant."""

    value: float


@dataclass(frozen=True, eq=False)
class Apply(Element):
    """A scalar function of the IR."""

    function: str


@dataclass(frozen=True, eq=False)
class Convert(Element):
    """A conversion to another element type, or the same bits read as that type."""

    is_bitcast: bool


@dataclass(frozen=True, eq=False)
class Read(Element):
    """An element of a tensor, 0 where the mask does not hold.

    ``ahead`` says how far each index is from an element that will be read soon, by the next program
    or by this one, and is fetched on the way. Empty: nothing is fetched.
    """

    access: Access
    ahead: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class PositionOf(Element):
    """A position as a number, counted from the operand where there is one."""

    position: Position


@dataclass(frozen=True, eq=False)
class BlockLength(Element):
    """How long a whole tile of a block is."""

    block: str


@dataclass(frozen=True, eq=False)
class View(Element):
    """The same element seen from other axes."""


@dataclass(frozen=True, eq=False)
class Gathered(Element):
    """The second operand, which lies at a position that the first one says."""


@dataclass(frozen=True, eq=False)
class Joined(Element):
    """The first of two operands where ``position`` is 0, else the second; one where it is known."""

    position: Position


@dataclass(frozen=True, eq=False)
class ReadVariable(Element):
    """A scalar."""

    variable: Variable


@dataclass(frozen=True, eq=False)
class ReadTile(Element):
    """An element of a tile in memory: scratch memory, or where a later store puts its result."""

    place: TilePlace | Access


LEAVES = (ReadVariable, ReadTile)
"""Elements that were computed before, by another statement."""


def walk_elements(elements: Iterable[Element], stop: Collection[Element] = ()) -> Iterator[Element]:
    """Elements and all that they are computed from, each once, operands before their users.

    What is behind an element of ``stop`` is left out.
    """
    seen: set[Element] = set()

    def visit(element: Element) -> Iterator[Element]:
        if element in seen:
            return
        seen.add(element)
        for operand in () if element in stop else element.operands:
            yield from visit(operand)
        yield element

    for element in elements:
        yield from visit(element)
