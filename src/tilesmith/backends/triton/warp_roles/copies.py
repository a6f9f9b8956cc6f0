"""Tiles in shared memory: how the copy engine is told of them, where they lie, their views."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from tilesmith.backends.triton.emission.spelling import Expr
from tilesmith.backends.triton.ops.accesses import (
    BlockAccess,
    Descriptor,
    find_block_access,
    find_descriptor,
)
from tilesmith.backends.triton.warp_roles.emitter import ROWS, RoleEmitter
from tilesmith.dtypes import DType
from tilesmith.ir.ops.memory import Load, Store
from tilesmith.ir.types import Dim, Shape

SWIZZLED_BYTES = (128, 64, 32)
"""Widths over which rows of a tile are shuffled, so that matrix units read without conflicts."""


@dataclass(frozen=True)
class CopiedTile:
    """A tile that the copy engine moves between a tensor and a buffer in shared memory."""

    dtype: DType
    descriptor: Descriptor
    access: BlockAccess
    block: tuple[int, ...]
    """Sizes in the order of the descriptor's axes."""
    rows: Dim
    """The axis that groups share."""

    @property
    def has_group_rows(self) -> bool:
        """Whether each group has a buffer of its own, with its rows."""
        return any(axis.dim == self.rows for axis in self.descriptor.axes)

    @property
    def num_bytes(self) -> int:
        """Of one buffer."""
        return prod(self.block) * self.dtype.itemsize

    @property
    def layout(self) -> str:
        """How a buffer is arranged, for the copy engine and the matrix units alike."""
        return shared_layout(self.block, self.dtype)

    def position(self, group: str) -> str:
        """The first index along each axis, as the copy engine takes it."""
        before = Expr(f"{group} * {ROWS}")
        starts = [
            axis.start + before if axis.dim == self.rows else axis.start
            for axis in self.descriptor.axes
        ]
        return f"[{', '.join(map(str, starts))}]"

    def view(self, buffer: str, *, is_turned: bool = False) -> str:
        """A buffer as the matrix that the IR has, axes of size 1 left out; or its transpose."""
        tiles = [axis for axis in self.descriptor.axes if not axis.dim.is_one]
        if len(tiles) < len(self.block):
            sizes = zip(self.block, self.descriptor.axes)
            buffer = f"{buffer}.reshape({[size for size, axis in sizes if not axis.dim.is_one]})"
        is_turned ^= list(self.access.tiles) != tiles
        return f"{buffer}.permute((1, 0))" if is_turned else buffer


def shared_layout(block: tuple[int, ...], dtype: DType) -> str:
    """The widest arrangement that a block of so many rows and bytes can have."""
    row = block[-1] * dtype.itemsize
    is_flat = prod(block[:-1]) < 8
    width = 0 if is_flat else next((width for width in SWIZZLED_BYTES if row % width == 0), 0)
    return f"gl.NVMMASharedLayout({width}, {dtype.bits}, {len(block)})"


def find_copy(emitter: RoleEmitter, op: Load | Store) -> CopiedTile | None:
    """How the copy engine moves what an access touches; None where it cannot."""
    shape: Shape = op.result.tile.shape if isinstance(op, Load) else op.value.tile.shape
    access = find_block_access(emitter, op.tensor, op.indices, shape)
    descriptor = None if access is None else find_descriptor(emitter, access)
    if access is None or descriptor is None or op.mask is not None:
        return None
    dims = tuple(axis.dim for axis in descriptor.axes)
    block, dtype = emitter.schedule.physical_shape(dims), op.tensor.tensor.dtype
    described = emitter.spelling.needs.descriptions
    for item in [item for item, name in described.items() if name == descriptor.name]:
        described[replace(item, layout=shared_layout(block, dtype))] = described.pop(item)
    return CopiedTile(dtype, descriptor, access, block, Dim.of(emitter.rows))
