"""Which products take several steps along k at once, by their types and the target's features."""

from __future__ import annotations

from tilesmith.backends.cpu.dots.joined_steps.counts import BYTES, PAIRS
from tilesmith.dtypes import BF16, F32, I8, I32, DType
from tilesmith.ir.ops.matmul import Dot
from tilesmith.targets import Target


def multiplies_tiles(op: Dot, target: Target) -> bool:
    """Whether a product multiplies bf16 in tile registers."""
    return target.has_matrix_tiles and op.lhs.tile.dtype == op.rhs.tile.dtype == BF16


def reads_halves(op: Dot, target: Target) -> bool:
    """Whether a product reads its operands as bf16, not widened."""
    reads = target.has_matrix_tiles or target.has_pair_products
    return reads and op.lhs.tile.dtype == op.rhs.tile.dtype == BF16


def steps_at_once(op: Dot, target: Target) -> int:
    """How many steps along k the lanes of a product take at once."""
    most = most_steps(op.lhs.tile.dtype, op.rhs.tile.dtype, target)
    return most if op.result.tile.dtype.computed == (I32 if most == BYTES else F32) else 1


def most_steps(lhs: DType, rhs: DType, target: Target) -> int:
    """How many steps along k lanes can take at once for operands of these types."""
    if lhs == rhs == I8 and target.has_byte_products:
        return BYTES
    # Tile registers take the same operands, more of them at once.
    has_pairs = target.has_pair_products and not target.has_matrix_tiles
    return PAIRS if lhs == rhs == BF16 and has_pairs else 1
