"""Accesses that are a block of a tensor: one run of indices per dimension, in the tensor's order.

Block pointers and tensor descriptors need this form. They check bounds against the tensor, so an
axis that may be partial must end where the tensor does.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from tilesmith.analysis.affine import AffineIndex, find_affine
from tilesmith.backends.triton.emit import Emitter
from tilesmith.backends.triton.expressions import Expr, add, literal, multiply, subscript
from tilesmith.ir.ops.indexing import Full
from tilesmith.ir.types import ONE, Dim, Extent, Shape
from tilesmith.ir.values import Value


@dataclass(frozen=True)
class BlockAxis:
    """The part of one tensor dimension that is accessed."""

    position: int
    """The tensor's dimension."""
    start: Expr
    dim: Dim
    """What is accessed: ``ONE`` for a single index."""
    is_partial: bool
    size: Extent
    stride: Extent
    multiple: int
    """What ``start`` is a multiple of; 0 where it is 0."""


@dataclass(frozen=True)
class BlockAccess:
    """One block of one tensor."""

    tensor: Value
    axes: tuple[BlockAxis, ...]
    shape: Shape
    """The accessed shape."""

    @property
    def tiles(self) -> tuple[BlockAxis, ...]:
        """The dimensions of which more than one index is accessed."""
        return tuple(axis for axis in self.axes if not axis.dim.is_one)


def find_block_access(
    emitter: Emitter, tensor: Value, indices: tuple[Value, ...], shape: Shape
) -> BlockAccess | None:
    """The access as a block, if it is one."""
    axes: list[BlockAxis] = []
    covered: list[int] = []
    for position, index in enumerate(indices):
        affine = find_affine(index, emitter.uses.defining)
        if affine is None:
            return None
        if affine.axis is not None:
            covered.append(affine.axis + len(shape) - index.tile.rank)
        axis = _block_axis(emitter, tensor, position, affine)
        if axis is None:
            return None
        axes.append(axis)
    # Every axis of the tile is one dimension of the tensor, and they come in the same order.
    wide = [axis for axis, dim in enumerate(shape) if not dim.is_one]
    return BlockAccess(tensor, tuple(axes), shape) if covered == wide else None


def _block_axis(
    emitter: Emitter, tensor: Value, position: int, affine: AffineIndex
) -> BlockAxis | None:
    size, stride = tensor.tensor.shape[position], tensor.tensor.strides[position]
    if any(value.tile.dtype.bits > 32 for value, _ in affine.base):
        return None
    start = _start(emitter, affine)
    multiple = gcd(*(emitter.multiples.of(x) * scale for x, scale in affine.base), affine.offset)
    if affine.axis is None or affine.dim is None:
        return BlockAxis(position, start, ONE, False, size, stride, multiple)
    if affine.scale != 1:
        return None
    is_partial = emitter.masks.is_partial(affine.dim)
    if is_partial and not _ends_with_tensor(emitter, affine, size):
        return None
    return BlockAxis(position, start, affine.dim, is_partial, size, stride, multiple)


def _start(emitter: Emitter, affine: AffineIndex) -> Expr:
    total = literal(0)
    for value, coefficient in affine.base:
        total = add(total, multiply(emitter.expr(value), literal(coefficient)))
    return add(total, literal(affine.offset))


def _ends_with_tensor(emitter: Emitter, affine: AffineIndex, size: Extent) -> bool:
    """Whether the lanes past the end of the tile are exactly those past the end of the tensor."""
    assert affine.dim is not None
    axis = emitter.scope.axis_of(affine.dim) if len(affine.dim.factors) == 1 else None
    if axis is None or affine.offset:
        return False
    if axis.start_value is None:
        return not affine.base and affine.dim == Dim.of(size)
    if affine.base != ((axis.start_value, 1),) or axis.end_value is None:
        return False
    op = emitter.uses.defining.get(axis.end_value)
    if isinstance(op, Full):
        return op.value == size
    return isinstance(size, str) and axis.end_value is emitter.function.find_parameter(size)


def restore_ones(expr: Expr, shape: Shape) -> Expr:
    """A block's content with the accessed shape's axes of size 1 put back."""
    ones = tuple(axis for axis, dim in enumerate(shape) if dim.is_one)
    return subscript(expr, ones, shape) if ones else expr.with_shape(shape)
