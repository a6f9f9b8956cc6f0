"""Where a load, store or atomic goes: plain offsets with a mask, or one block of a tensor.

A block is described by a block pointer, or by a tensor descriptor: the form that uses TMA.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd

from tilesmith.analysis.affine import AffineIndex, find_affine
from tilesmith.analysis.effects import alias_group, exchanged_memory
from tilesmith.artifacts import TensorDescription
from tilesmith.backends.triton.emission.axes import conjunction, index_terms
from tilesmith.backends.triton.emission.emitter import Emitter
from tilesmith.backends.triton.emission.spelling import (
    Expr,
    call,
    literal,
    triton_dtype,
)
from tilesmith.backends.triton.emission.tile_ends import ends_with_tensor
from tilesmith.backends.triton.ops.elementwise import convert
from tilesmith.dtypes import I64
from tilesmith.ir.ops.memory import Atomic, Load, Store
from tilesmith.ir.types import ONE, Dim, Extent, Shape, Value


def offset(emitter: Emitter, tensor: Value, indices: Sequence[Value | None]) -> Expr:
    """The element offset of every accessed lane; dimensions without an index add nothing."""
    total = literal(0)
    for index, stride in index_terms(tensor, indices, emitter.uses.defining):
        term, dtype = emitter.expr(index), index.tile.dtype
        # The product with the stride may need 64 bits.
        if tensor.tensor.wide and stride != 1 and term.constant is None and dtype.bits != I64.bits:
            term = convert(term, dtype, I64)
        total += term * emitter.spelling.extent(stride)
    return total


def pointer(emitter: Emitter, op: Load | Store | Atomic) -> Expr:
    """The address of every accessed lane."""
    base = emitter.expr(op.tensor)
    if not isinstance(op, Atomic) and op.bases is not None:
        kind = f"tl.pointer_type({triton_dtype(op.tensor.tensor.dtype)})"
        base = emitter.exact(op.bases).method("to", kind)
    elements = offset(emitter, op.tensor, op.indices)
    return base if elements.constant == 0 else base.infix("+", elements)


def access_mask(emitter: Emitter, op: Load | Store | Atomic, shape: Shape) -> Expr | None:
    """The lanes an access touches; None for all."""
    implicit = emitter.scope.mask(shape, emitter.facts.unbounded_axes(op, len(shape)))
    given = None if op.mask is None else emitter.expr(op.mask)
    if given is not None and given.constant is True:
        given = None
    return conjunction([mask for mask in (implicit, given) if mask is not None])


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
    emitter: Emitter,
    tensor: Value,
    indices: tuple[Value, ...],
    shape: Shape,
    unseen: tuple[int, ...] = (),
) -> BlockAccess | None:
    """The access as a block, if it is one. ``unseen`` axes of the tile may hold more than it."""
    axes: list[BlockAxis] = []
    covered: list[int] = []
    for position, index in enumerate(indices):
        affine = find_affine(index, emitter.uses.defining)
        if affine is None:
            return None
        if affine.axis is not None:
            covered.append(affine.axis + len(shape) - index.tile.rank)
        is_unseen = affine.axis is not None and covered[-1] in unseen
        axis = _block_axis(emitter, tensor, position, affine, is_unseen=is_unseen)
        if axis is None:
            return None
        axes.append(axis)
    # Every axis of the tile is one dimension of the tensor, and they come in the same order.
    wide = [axis for axis, dim in enumerate(shape) if not dim.is_one]
    return BlockAccess(tensor, tuple(axes), shape) if covered == wide else None


def _block_axis(
    emitter: Emitter, tensor: Value, position: int, affine: AffineIndex, *, is_unseen: bool
) -> BlockAxis | None:
    size, stride = tensor.tensor.shape[position], tensor.tensor.strides[position]
    is_wide = any(value.tile.dtype.bits > 32 for value, _ in affine.base)
    if is_wide and not emitter.scope.has_narrow_starts:
        return None
    start = _start(emitter, affine)
    multiple = gcd(*(emitter.multiples.of(x) * scale for x, scale in affine.base), affine.offset)
    if affine.axis is None or affine.dim is None:
        return BlockAxis(position, start, ONE, False, size, stride, multiple)
    if affine.scale != 1:
        return None
    is_partial = emitter.scope.is_partial(affine.dim)
    if is_partial and not is_unseen and not ends_with_tensor(emitter, affine, size):
        return None
    return BlockAxis(position, start, affine.dim, is_partial, size, stride, multiple)


def _start(emitter: Emitter, affine: AffineIndex) -> Expr:
    total = literal(0)
    for value, coefficient in affine.base:
        total += emitter.expr(value) * coefficient
    return total + affine.offset


def restore_ones(expr: Expr, shape: Shape) -> Expr:
    """A block's content with the accessed shape's axes of size 1 put back."""
    ones = tuple(axis for axis, dim in enumerate(shape) if dim.is_one)
    return expr.subscript(ones, shape) if ones else expr.with_shape(shape)


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
        base = base.infix("+", elements)
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


# The host makes descriptors and passes them as arguments. A program that made its own would wait
# for memory first: 10 us of 190 for a product of 4096^3. The hardware wants a contiguous last
# dimension, the other strides in multiples of 16 bytes, at least 16 contiguous bytes, and blocks
# that begin at a multiple of 16 bytes. A tensor whose contiguous dimension is another one is
# described with its dimensions reordered, and its tiles are transposed.
ALIGNMENT_BYTES = 16
MIN_RANK, MAX_RANK = 2, 5
MIN_PART_BYTES = 64
"""Of a row of a tile that is stored in parts."""


@dataclass(frozen=True)
class Descriptor:
    """A named descriptor and how a tile lies in it."""

    name: str
    axes: tuple[BlockAxis, ...]
    """The tensor's dimensions in the descriptor's order."""

    def offsets(self, further: int = 0) -> str:
        """Where the block starts, or a part of it that lies further along the contiguous axis."""
        starts = [axis.start for axis in self.axes]
        if further:
            starts[-1] += further
        return "[" + ", ".join(map(str, starts)) + "]"


def find_descriptor(emitter: Emitter, access: BlockAccess, parts: int = 1) -> Descriptor | None:
    """The descriptor for a block, made on first use; None where the hardware could not take it.

    With several parts it is for one part of the contiguous axis.
    """
    axes = _contiguous_last(access)
    # Descriptors take another path to memory, which plain accesses of it are not ordered with.
    is_shared = alias_group(access.tensor) in exchanged_memory(emitter.function)
    if axes is None or is_shared or not _is_describable(emitter, access, axes):
        return None
    return Descriptor(_describe(emitter, access.tensor, axes, parts), axes)


def _describe(emitter: Emitter, tensor: Value, axes: tuple[BlockAxis, ...], parts: int) -> str:
    spelling, described = emitter.spelling, emitter.spelling.needs.descriptions
    parameter = str(emitter.expr(tensor))
    block = emitter.schedule.physical_shape(tuple(axis.dim for axis in axes))
    found = TensorDescription(
        f"{parameter}_desc",
        parameter,
        tensor.tensor.dtype.name,
        shape=tuple(str(spelling.extent(axis.size)) for axis in axes),
        strides=tuple(axis.stride for axis in axes if isinstance(axis.stride, int)),
        block=(*block[:-1], block[-1] // parts),
    )
    if found not in described:
        described[found] = spelling.names.fresh(found.name)
    return described[found]


def _contiguous_last(access: BlockAccess) -> tuple[BlockAxis, ...] | None:
    """The dimensions with the contiguous tile at the end, the others in their order."""
    units = [axis for axis in access.tiles if axis.stride == 1]
    if len(units) != 1:
        return None
    return (*(axis for axis in access.axes if axis is not units[0]), units[0])


def _is_describable(emitter: Emitter, access: BlockAccess, axes: tuple[BlockAxis, ...]) -> bool:
    dtype = access.tensor.tensor.dtype
    if not MIN_RANK <= len(axes) <= MAX_RANK or dtype.is_bool or dtype.bits > 32:
        return False
    strides_fit = all(
        isinstance(axis.stride, int)
        and axis.stride > 0
        and axis.stride * dtype.itemsize % ALIGNMENT_BYTES == 0
        for axis in axes[:-1]
    )
    # The hardware faults on a run that begins between two units of 16 bytes.
    begins_aligned = axes[-1].multiple * dtype.itemsize % ALIGNMENT_BYTES == 0
    run_bytes = emitter.schedule.physical(axes[-1].dim) * dtype.itemsize
    sizes_known = all(isinstance(axis.size, str) or axis.size > 0 for axis in axes)
    return strides_fit and begins_aligned and run_bytes >= ALIGNMENT_BYTES and sizes_known


def from_descriptor(emitter: Emitter, access: BlockAccess, descriptor: Descriptor) -> Expr:
    """What a descriptor's load gives, as the accessed tile."""
    loaded = Expr(descriptor.name).method("load", descriptor.offsets())
    tiles = [axis for axis in descriptor.axes if not axis.dim.is_one]
    shape = tuple(axis.dim for axis in tiles)
    if len(tiles) < len(descriptor.axes):
        loaded = call("tl.reshape", loaded, emitter.spelling.shape(shape))
    order = [tiles.index(axis) for axis in access.tiles]
    return restore_ones(_reordered(loaded, order, shape), access.shape)


def to_descriptor(
    emitter: Emitter, access: BlockAccess, descriptor: Descriptor, value: Expr
) -> Expr:
    """A tile arranged as the descriptor wants it; it must be full-sized."""
    tiles = [axis for axis in descriptor.axes if not axis.dim.is_one]
    order = [access.tiles.index(axis) for axis in tiles]
    shape = tuple(axis.dim for axis in access.tiles)
    if value.shape != shape:
        value = call("tl.reshape", value, emitter.spelling.shape(shape))
    value = _reordered(value, order, shape)
    whole = tuple(axis.dim for axis in descriptor.axes)
    if len(tiles) < len(descriptor.axes):
        value = call("tl.reshape", value, emitter.spelling.shape(whole))
    return value


def count_parts(emitter: Emitter, access: BlockAccess) -> int:
    """In how many parts a tile is stored: as many as asked for, while each is worth a copy."""
    axes = _contiguous_last(access)
    run = 0 if axes is None else emitter.schedule.physical(axes[-1].dim)
    parts = emitter.schedule.store_parts
    while parts > 1 and run // parts * access.tensor.tensor.dtype.itemsize < MIN_PART_BYTES:
        parts //= 2
    return parts


def split_last(emitter: Emitter, value: Expr, shape: tuple[int, ...], parts: int) -> list[Expr]:
    """The parts of a tile along its last axis, in order."""
    if parts == 1:
        return [value]
    *rows, columns = shape
    halves = call("tl.reshape", value, str([*rows, 2, columns // 2]))
    rank = len(rows)
    turned = call("tl.permute", halves, str([*range(rank), rank + 1, rank]))
    names = [emitter.spelling.names.fresh(name) for name in ("left", "right")]
    emitter.writer.statement(f"{', '.join(names)} = tl.split", [str(turned)])
    half = (*rows, columns // 2)
    return [part for name in names for part in split_last(emitter, Expr(name), half, parts // 2)]


def _reordered(expr: Expr, order: list[int], shape: Shape) -> Expr:
    if order == sorted(order):
        return expr.with_shape(shape)
    new = tuple(shape[axis] for axis in order)
    if order == [1, 0]:
        return call("tl.trans", expr, shape=new)
    return call("tl.permute", expr, order, shape=new)
