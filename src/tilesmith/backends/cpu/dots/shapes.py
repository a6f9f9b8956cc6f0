"""How many rows and columns of a result are held in vector registers at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilesmith.backends.cpu.llvm.registers import Register
from tilesmith.dtypes import DType


@dataclass(frozen=True)
class View:
    """A strided matrix in memory.

    Attributes:
        strides: from one row and from one column to the next, in elements.
        dtype: what lies there, in memory form.
        panel: columns of a panel where the matrix was packed before; from one panel to the next it
            is that many times the second stride. 0 where it was not. Where each packed element
            holds several steps along k, the first stride is that of one of these steps.
        group: how many steps those are.
    """

    pointer: Register
    strides: tuple[Register, Register]
    dtype: DType
    panel: int = 0
    group: int = 1


@dataclass(frozen=True)
class DotProblem:
    """Extents and numerics of ``out[:m, :n] (+)= lhs[:m, :k] @ rhs[:k, :n]``.

    Attributes:
        extents: m, n and k as 64-bit registers.
        bounds: what they are at most, where known.
        dtype: F32, F64 or an integer type: products and sums are computed in it.
        lanes: fp32 lanes of the target's vectors.
        accumulate: add to what ``out`` holds instead of overwriting it; may be an ``i1`` of run
            time, so that the first step of a loop needs no zeros to add to.
        scratch: gives that many bytes of 64-byte aligned memory, valid during the product.
        has_matrix_tiles: the target multiplies bf16 matrices in tile registers (AMX); used where
            both operands lie as bf16 and products are F32. Denormal numbers of bf16 count as zero.
        has_byte_products: the target adds up four products of bytes in a lane (VNNI); used where
            both operands lie as int8 and products are I32.
        has_pair_products: the target adds up two products of bf16 in a lane; used where both
            operands lie as bf16 and products are F32. Denormal numbers count as zero.
    """

    extents: tuple[Register, Register, Register]
    bounds: tuple[int | None, int | None, int | None]
    dtype: DType
    lanes: int
    accumulate: bool | Register
    scratch: Callable[[int], Register]
    has_matrix_tiles: bool = False
    has_byte_products: bool = False
    has_pair_products: bool = False


MAX_ROWS = 16
MAX_ROWS_IN_PLACE = 8
TILE_ROWS = 16
_WIDE_LANES = 16
_MANY = 4096
_COMPETING_BYTES = 1024
_MAX_VECTORS = 4
_FEW_ROWS = 6


@dataclass(frozen=True)
class RegisterBlock:
    """The part of a result that one micro-kernel keeps in registers: rows of vectors."""

    rows: int
    vectors: int
    lanes: int

    @property
    def columns(self) -> int:
        """Columns of the block."""
        return self.vectors * self.lanes

    @property
    def packed_rows(self) -> int:
        """Rows of a packed left panel: whole vectors."""
        return round_up(self.rows, self.lanes)

    def cycles(self, rate: int) -> float:
        """Estimated cycles for one step along k: arithmetic, loads or latency, and the loop."""
        loads = self.rows + self.vectors
        return max(self.rows * self.vectors / rate, 0.6 * loads, 4.0) + 0.45


def round_up(value: int, multiple: int) -> int:
    """The smallest multiple that is at least ``value``."""
    return -(-value // multiple) * multiple


def vector_lanes(lanes: int, dtype: DType) -> int:
    """Elements of a computing type in a vector that holds ``lanes`` fp32 numbers."""
    return max(1, lanes * 4 // dtype.itemsize)


def register_block(
    lanes: int,
    dtype: DType,
    bounds: tuple[int | None, int | None],
    most_rows: int = MAX_ROWS,
    panel: int = 0,
    rate: int = 2,
) -> RegisterBlock:
    """The cheapest block for a result of at most that many rows and columns.

    It has as many columns as a ``panel`` where the right operand was packed before. ``rate`` is how
    many multiply-adds of vectors a cycle takes.
    """
    rows, columns = bounds
    width = vector_lanes(lanes, dtype)
    registers = 32 if lanes == _WIDE_LANES else 16
    most = _MAX_VECTORS if columns is None else _vectors_for(columns, width)
    if rows is None or rows > _FEW_ROWS:
        # Wider panels of the right operand would not stay in the first cache.
        most = min(most, 2)
    allowed = [v for v in (2, 4, 1) if v <= most]
    if columns is not None and 2 * width < columns <= 3 * width:
        # Two blocks of two would compute a vector of columns that are not there.
        allowed.append(3)
    candidates = [
        RegisterBlock(count, vectors, width)
        for vectors in ([panel // width] if panel else allowed)
        for count in range(min((registers - 1 - vectors) // vectors, most_rows), 0, -1)
    ]

    def cost(block: RegisterBlock) -> tuple[float, int]:
        tall = -(-(rows or _MANY) // block.rows)
        wide = -(-(columns or _MANY) // block.columns)
        return tall * wide * block.cycles(rate), block.rows * block.vectors

    return min(candidates, key=cost)


def tile_block(lanes: int, bounds: tuple[int | None, int | None]) -> RegisterBlock:
    """Tile registers side by side: two by two unless the result has no more rows or columns."""
    rows, columns = bounds
    tall = 1 if rows is not None and rows <= TILE_ROWS else 2
    wide = 2 if columns is None else min(_vectors_for(columns, lanes), 2)
    return RegisterBlock(tall * TILE_ROWS, wide, lanes)


def padded_shape(lanes: int, dtype: DType, rows: int, columns: int) -> tuple[int, int]:
    """Rows and columns of memory that a result of that size needs: whole register blocks.

    There is room whichever block a bound between the size and the next power of two leads to.
    """
    width = vector_lanes(lanes, dtype)
    tall = max(rows + MAX_ROWS - 1, round_up(rows, tile_block(width, (rows, columns)).rows))
    wide = round_up(columns, _vectors_for(columns, width) * width)
    # At such distances the rows of a block would compete for few places of the first cache.
    return tall, wide + width if wide * dtype.itemsize % _COMPETING_BYTES == 0 else wide


def _vectors_for(columns: int, width: int) -> int:
    """The most vectors in a row of a block: a power of two, not many more than there are."""
    count = max(-(-columns // width), 1)
    return min(1 << (count - 1).bit_length(), _MAX_VECTORS)
