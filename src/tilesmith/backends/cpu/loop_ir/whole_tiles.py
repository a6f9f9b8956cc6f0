"""Statements that go through whole tiles by themselves: products, scans, combinations, prints."""

from __future__ import annotations

from dataclasses import dataclass

from tilesmith.backends.cpu.dots.plans import Packing
from tilesmith.backends.cpu.loop_ir.elements import (
    Access,
    Element,
    Tensor,
    Tile,
    TilePlace,
    Unread,
    Variable,
)
from tilesmith.diagnostics.location import SourceLocation
from tilesmith.dtypes import DType
from tilesmith.ir.ops.reduction import ReduceKind
from tilesmith.ir.types import Extent, Shape

LEAST_PROGRAMS, MOST_BYTES = 4, 256 << 20
"""Where packing pays: each program packs in its cache, at less than half the cost in memory."""


@dataclass(frozen=True)
class PackedTensor:
    """A tensor that is packed once for all programs: panels of columns, each with all of k.

    Attributes:
        axes: the tensor's dimensions along k and along the columns.
        shared_axes: the axes of the grid whose programs have it in common.
        is_certain: whether enough programs and few enough bytes are known beforehand.
        depth: a size that has to be the length of k, or the copy cannot be used; None if any can.
    """

    tensor: Tensor
    axes: tuple[int, int]
    packing: Packing
    shared_axes: tuple[int, ...]
    is_certain: bool
    depth: Variable | None = None

    @property
    def extents(self) -> tuple[Extent, Extent]:
        """How long k and the rows are."""
        k, n = self.axes
        return self.tensor.type.shape[k], self.tensor.type.shape[n]

    @property
    def strides(self) -> tuple[Extent, Extent]:
        """From one step along k and from one column to the next."""
        k, n = self.axes
        return self.tensor.type.strides[k], self.tensor.type.strides[n]

    @property
    def size(self) -> int | None:
        """Bytes of the copy, where that is known beforehand."""
        k, n = self.extents
        if not self.is_certain or isinstance(k, str) or isinstance(n, str):
            return None
        return self.packing.count_elements(k, n) * self.packing.dtype.itemsize


@dataclass(frozen=True)
class PackedOperand:
    """The part of a packed tensor that one product reads: where it begins, None at 0."""

    source: PackedTensor
    begins: tuple[Variable | None, Variable | None]


@dataclass(frozen=True, eq=False)
class StoredMatrix:
    """An operand of a product in scratch memory."""

    element: Element
    tile: Tile


@dataclass(frozen=True, eq=False)
class LoadedMatrix:
    """An operand of a product that is read where a tensor has it.

    Attributes:
        element: an element of it, at its own axes.
        access: the element of the tensor.
        axes: for each dimension the loop it would be; None for one element.
        steps: for each loop, by how much each index of the tensor grows.
    """

    element: Element
    access: Access
    axes: tuple[int | None, ...]
    steps: tuple[tuple[int, ...], ...]

    @property
    def is_transposed(self) -> bool:
        """Whether the tensor's dimensions come in another order than the matrix's axes."""
        moving = [axis for index in self.access.indices for axis in sorted(index.axes)]
        return moving != sorted(moving)


Matrix = StoredMatrix | LoadedMatrix


@dataclass(frozen=True, eq=False)
class Product:
    """``target[:m, :n] (+)= lhs[:m, :k] @ rhs[:k, :n]``, one for each matrix of a batch.

    Attributes:
        addend: an element of what is added, for its lines.
        shape: m, n and k, behind the batch where there is one.
        bounds: how long m, n and k are at most, where that is known.
        dtype: what the result is rounded to.
        accumulates: whether ``target`` holds something to add to.
        starts_at: an index and where it begins, for each loop in whose first iteration it holds
            nothing; empty if that is no question.
        uses_matrix_tiles: whether operands are bf16 in tile registers.
        joined_steps: how many steps along k lanes take at once, of operands that lie as int8 or
            bf16.
        packed: the right operand, packed before the programs run.
    """

    target: Tile
    lhs: Matrix
    rhs: Matrix
    addend: Element | None
    shape: Shape
    bounds: tuple[int | None, int | None, int | None]
    dtype: DType
    accumulates: bool
    starts_at: tuple[tuple[Variable, Variable], ...]
    uses_matrix_tiles: bool
    joined_steps: int
    packed: PackedOperand | None
    loc: SourceLocation


@dataclass(frozen=True, eq=False)
class Scan:
    """Running combinations along one loop, element by element.

    Attributes:
        value: the element that each step takes in.
        along: the loop of the scan; None where there is one element.
        axis: the dimension of the scan.
        is_reversed: whether it begins with the last element.
    """

    value: Element
    space: Shape
    along: int | None
    axis: int
    kind: ReduceKind
    is_reversed: bool
    target: TilePlace
    loc: SourceLocation


@dataclass(frozen=True, eq=False)
class Combine:
    """A combination of the user's own along one loop, element by element.

    Attributes:
        values: the elements that each step takes in.
        axis: the dimension of the combination; ``along`` is its loop, as of a scan.
        args: what the elements so far have given, then the present elements.
        steps: the scalars of the combination, each with the element that computes it.
        yielded: the next results.
        is_scan: whether every step's results count, or only the last one's.
        others: the results of no elements.
        inner_locs: the lines of the combination.
    """

    values: tuple[Element, ...]
    space: Shape
    along: int | None
    axis: int
    args: tuple[Variable, ...]
    steps: tuple[tuple[Variable, Element], ...]
    yielded: tuple[Variable, ...]
    results: tuple[Variable | TilePlace | Unread, ...]
    is_scan: bool
    is_reversed: bool
    others: tuple[float, ...]
    loc: SourceLocation
    inner_locs: tuple[SourceLocation, ...]


@dataclass(frozen=True, eq=False)
class Print:
    """Lines about the elements of some tiles of these shapes, at this very moment."""

    prefix: str
    values: tuple[tuple[Element, Shape], ...]
    loc: SourceLocation


@dataclass(frozen=True, eq=False)
class SortLines:
    """Put the lines of a tile along one axis in order where they lie; ``count``: their beginnings.

    0 stands for all. Behind so many elements may be any others of the line.
    """

    tile: Tile
    axis: int
    count: int
    loc: SourceLocation


WholeTile = Product | Scan | Combine | Print | SortLines
