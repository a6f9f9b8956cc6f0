"""Tensor descriptors, which the host makes and passes as arguments: the form that uses TMA.

A program that made its own would wait for memory first: 10 us of 190 for a product of 4096^3.
The hardware wants a contiguous last dimension, the other strides in multiples of 16 bytes, at least
16 contiguous bytes, and blocks that begin at a multiple of 16 bytes. A tensor whose contiguous
dimension is another one is described with its dimensions reordered, and its tiles are transposed.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilesmith.analysis.effects import alias_group, exchanged_memory
from tilesmith.artifacts import TensorDescription
from tilesmith.backends.triton.emission.emitter import Emitter
from tilesmith.backends.triton.emission.expressions import Expr, add, call, literal, method
from tilesmith.backends.triton.ops.accesses import BlockAccess, BlockAxis
from tilesmith.ir.types import Shape, Value

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
            starts[-1] = add(starts[-1], literal(further))
        return "[" + ", ".join(map(str, starts)) + "]"


def find_descriptor(emitter: Emitter, access: BlockAccess, parts: int = 1) -> Descriptor | None:
    """The descriptor for a block, made on first use; None where the hardware could not take it.

    With several parts it is for one part of the contiguous axis.
    """
    axes = _contiguous_last(access)
    if axes is None or not _is_describable(emitter, access, axes) or _is_shared(emitter, access):
        return None
    return Descriptor(_describe(emitter, access.tensor, axes, parts), axes)


def _describe(emitter: Emitter, tensor: Value, axes: tuple[BlockAxis, ...], parts: int) -> str:
    """The name of the argument for blocks of a tensor."""
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


def _is_shared(emitter: Emitter, access: BlockAccess) -> bool:
    """Whether the kernel both reads and writes the memory.

    Descriptors take another path to memory, which plain loads and stores are not ordered with.
    """
    return alias_group(access.tensor) in exchanged_memory(emitter.function)


def from_descriptor(emitter: Emitter, access: BlockAccess, descriptor: Descriptor) -> Expr:
    """What a descriptor's load gives, as the tile without axes of size 1."""
    loaded = method(Expr(descriptor.name), "load", descriptor.offsets())
    tiles = [axis for axis in descriptor.axes if not axis.dim.is_one]
    shape = tuple(axis.dim for axis in tiles)
    if len(tiles) < len(descriptor.axes):
        loaded = call("tl.reshape", loaded, emitter.spelling.shape(shape))
    order = [tiles.index(axis) for axis in access.tiles]
    return _reordered(loaded, order, shape)


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
