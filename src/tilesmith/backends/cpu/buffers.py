"""How stored tiles lie in memory: element type, padding and size.

Results and operands of products are held as registers hold them (not as operands of tile
registers), results padded to whole register blocks; all other tiles are held as tensors hold them.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilesmith.backends.cpu.builder import Builder
from tilesmith.backends.cpu.dots.shapes import padded_shape, vector_lanes
from tilesmith.backends.cpu.matrix_views import find_stored
from tilesmith.backends.cpu.memory_access import Elements
from tilesmith.backends.cpu.nests import Program
from tilesmith.backends.cpu.registers import Register, index, memory_element
from tilesmith.backends.cpu.virtual_tiles import VirtualTiles
from tilesmith.dtypes import BF16, F32, DType
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.values import Value
from tilesmith.targets import Target

_MOST_VECTORS = 4
_SPARE_ROWS = 31


@dataclass(frozen=True)
class Buffer:
    """A tile in memory of its own. ``dtype`` is what its elements are held as."""

    pointer: Register
    strides: tuple[Register, ...]
    dtype: DType

    @property
    def element(self) -> str:
        """The LLVM type of an element."""
        return memory_element(self.dtype)

    @property
    def elements(self) -> Elements:
        """The memory itself."""
        return Elements(self.pointer, self.element)


def is_product(value: Value, program: Program, tiles: VirtualTiles) -> bool:
    """Whether a product writes the tile's buffer, directly or as a carried tile."""
    sharing = [value, *(v for v in program.aliases if program.buffer_of(v) is value)]
    return any(isinstance(tiles.definitions.get(v), Dot) for v in sharing)


def compute_dtype(result: DType) -> DType:
    """What a product is accumulated in."""
    return F32 if result.is_low_precision_float else result


def multiplies_tiles(op: Dot, target: Target) -> bool:
    """Whether a product reads its operands as bf16: it does so in tile registers only."""
    return target.has_matrix_tiles and op.lhs.tile.dtype == op.rhs.tile.dtype == BF16


def held_as(value: Value, program: Program, tiles: VirtualTiles, target: Target) -> DType:
    """The element type of a tile's buffer: operands of products need no conversion then."""
    dots = [op for op in tiles.definitions.values() if isinstance(op, Dot)]
    users = [op for op in dots if value in (find_stored(x, tiles) for x in (op.lhs, op.rhs))]
    is_widened = any(not multiplies_tiles(op, target) for op in users)
    dtype = value.tile.dtype
    if is_widened or is_product(value, program, tiles):
        return compute_dtype(dtype)
    return dtype


def padded_lengths(b: Builder, lengths: list[Register], lanes: int, dtype: DType) -> list[Register]:
    """Room for the whole register blocks of a product."""
    rows, columns = lengths[-2:]
    if rows.constant is not None and columns.constant is not None:
        padded = map(index, padded_shape(lanes, dtype, rows.constant, columns.constant))
        return [*lengths[:-2], *padded]
    block = vector_lanes(lanes, dtype) * _MOST_VECTORS
    raised = b.add(columns, index(block - 1))
    return [*lengths[:-2], b.add(rows, index(_SPARE_ROWS)), b.round_down(raised, block)]
