"""How long the contracted axis of a matrix product must be to fill an instruction of a GPU."""

from __future__ import annotations

from tilesmith.analysis.loads_behind import Definitions, comes_from_bytes
from tilesmith.ir.ops.matmul import Dot

LEAST_CONTRACTED, LEAST_CONTRACTED_BYTES = 16, 32


def least_contracted(dot: Dot, definitions: Definitions) -> int:
    """The fewest elements along the contracted axis; more for bytes and what was widened from them.

    Triton lays out the operands of a product by the narrowest element loaded for them.
    """
    operands = (dot.lhs, dot.rhs)
    is_narrow = all(x.tile.dtype.itemsize == 1 for x in operands) or any(
        comes_from_bytes(x, definitions) for x in operands
    )
    return LEAST_CONTRACTED_BYTES if is_narrow else LEAST_CONTRACTED
