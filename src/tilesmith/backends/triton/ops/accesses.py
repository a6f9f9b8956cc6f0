"""Where a load, store or atomic goes: plain offsets with a mask, or one block of a tensor.

A block is described by a block pointer, or by a tensor descriptor (tensor_descriptors.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd

from tilesmith.analysis.affine import AffineIndex, find_affine
from tilesmith.backends.triton.emission.axes import conjunction, index_terms
from tilesmith.backends.triton.emission.emitter import Emitter
from tilesmith.backends.triton.emission.expressions import (
    Expr,
    add,
    binary,
    broadcast_shapes,
    call,
    literal,
    method,
    multiply,
    subscript,
)  # fmt: skip
from tilesmith.backends.triton.emission.spelling import triton_dtype
from tilesmith.backends.triton.ops.elementwise import convert
from tilesmith.dtypes import I64
from tilesmith.ir.ops.indexing import Full
from tilesmith.ir.ops.memory import Atomic, Load, Store
from tilesmith.ir.types import ONE, Dim, Extent, Shape, Value


def offset(emitter: Emitter, tensor: Value, indices: Sequence[Value | None]) -> Expr:
    """The element offset of every accessed lane; dimensions without an index add nothing."""
    total = literal(0)
    for index, stride in index_terms(tensor, indices, emitter.uses.defining):
        term = _wide_enough(emitter.expr(index), index, stride == 1, tensor.tensor.wide)
        total = add(total, multiply(term, emitter.spelling.extent(stride)))
    return total


def _wide_enough(expr: Expr, index: Value, is_unit: bool, is_wide: bool) -> Expr:
    """The index in 64 bits where its product with the stride may need them."""
    if not is_wide or is_unit or expr.constant is not None or index.tile.dtype.bits == I64.bits:
        return expr
    return convert(expr, index.tile.dtype, I64)


def pointer(emitter: Emitter, op: Load | Store | Atomic) -> Expr:
    """The address of every accessed lane."""
    base = emitter.expr(op.tensor)
    if not isinstance(op, Atomic) and op.bases is not None:
        kind = f"tl.pointer_type({triton_dtype(op.tensor.tensor.dtype)})"
        base = method(emitter.exact(op.bases), "to", kind)
    elements = offset(emitter, op.tensor, op.indices)
    return base if elements.constant == 0 else binary("+", base, elements)


def access_mask(emitter: Emitter, op: Load | Store | Atomic, shape: Shape) -> Expr | None:
    """The lanes an access touches; None for all."""
    implicit = emitter.masks.of_shape(shape, emitter.facts.unbounded_axes(op, len(shape)))
    given = None if op.mask is None else emitter.expr(op.mask)
    if given is not None and given.constant is True:
        given = None
    return conjunction([mask for mask in (implicit, given) if mask is not None])


def cover(emitter: Emitter, address: Expr, shape: Shape) -> Expr:
    """Addresses repeated along the axes of ``shape`` that they do not have yet."""
    whole = broadcast_shapes(address.shape, shape)
    if not shape or address.shape == whole:
        return address
    return call("tl.broadcast_to", address, emitter.spelling.shape(whole), shape=whole)


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


REMOVED_IN = (3, 9)


def has_block_pointer(emitter: Emitter, access: BlockAccess) -> bool:
    """Whether this Triton has block pointers and they can make this access."""
    dtype = access.tensor.tensor.dtype
    is_supported = emitter.triton_version < REMOVED_IN and not dtype.is_bool and dtype.bits >= 8
    # fp8 blocks fail to compile on 3.8.
    is_supported = is_supported and not (dtype.is_float and dtype.bits == 8)
    return is_supported and bool(access.tiles)


def block_pointer(emitter: Emitter, access: BlockAccess, indices: tuple[Value, ...]) -> Expr:
    """``tl.make_block_ptr`` over the dimensions that have a tile; the others move the base."""
    tiles = access.tiles
    fixed = tuple(indices[axis.position] if axis.dim.is_one else None for axis in access.axes)
    base = emitter.expr(access.tensor)
    elements = offset(emitter, access.tensor, fixed)
    if elements.constant != 0:
        base = binary("+", base, elements)
    spelling = emitter.spelling
    return call(
        "tl.make_block_ptr",
        base,
        _tuple([spelling.extent(axis.size) for axis in tiles]),
        _tuple([spelling.extent(axis.stride) for axis in tiles]),
        _tuple([axis.start for axis in tiles]),
        _tuple([spelling.dim(axis.dim) for axis in tiles]),
        f"order={_tuple(_order(tiles))}",
    )


def boundary_check(access: BlockAccess) -> list[str]:
    """The arguments that make Triton check the axes that may be partial."""
    checked = [i for i, axis in enumerate(access.tiles) if axis.is_partial]
    return [f"boundary_check={_tuple(checked)}"] if checked else []


def _order(tiles: tuple[BlockAxis, ...]) -> list[int]:
    """Axes from the fastest in memory to the slowest, as far as strides tell."""

    def key(axis: int) -> tuple[int, int]:
        stride = tiles[axis].stride
        return (stride if isinstance(stride, int) else 1 << 62, -axis)

    return sorted(range(len(tiles)), key=key)


def _tuple(items: list[Expr] | list[int]) -> str:
    return f"({', '.join(map(str, items))}{',' if len(items) == 1 else ''})"
