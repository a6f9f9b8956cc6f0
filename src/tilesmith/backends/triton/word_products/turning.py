"""Products of tf32 on Hopper whose right operand lies along its columns.

The asynchronous instruction reads 32-bit tiles from shared memory only if along the sum;
Triton turns a right operand of plain matrices around in shared memory, and waits for it. But a left
operand may come from registers, in any order. So the product of the transposes is computed, with
what was the right operand from registers.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilesmith.dtypes import F32
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.memory import Load
from tilesmith.ir.types import Value
from tilesmith.targets import Target

HOPPER, BLACKWELL = 90, 100
LEAST_WARPS = 4
"""Of a group that shares an instruction; fewer use the older ones, which read registers."""
LEAST_ROWS = 64
UNUSED_BITS = 8191
"""Of an fp32 number, which the units ignore."""


def is_turned(dot: Dot, definitions: Mapping[Value, Operation], target: Target) -> bool:
    """Whether the product of the transposes needs no operand to be turned in shared memory."""
    is_hopper = target.kind == "cuda" and HOPPER <= target.capability < BLACKWELL
    is_word = dot.lhs.tile.dtype == dot.rhs.tile.dtype == dot.result.tile.dtype == F32
    if not is_hopper or not is_word or dot.precision != "tf32" or dot.lhs.tile.rank != 2:
        return False
    return all(_lies_along_last(x, definitions) for x in (dot.lhs, dot.rhs))


def _lies_along_last(value: Value, definitions: Mapping[Value, Operation]) -> bool:
    """Whether a tile is loaded as it is, with neighbours in memory along its last axis."""
    load = definitions.get(value)
    if not isinstance(load, Load) or load.tensor.tensor.strides[-1:] != (1,):
        return False
    last = load.indices[-1].tile.shape
    return last[-1:] == value.tile.shape[-1:] and all(dim.is_one for dim in last[:-1])
