"""Products that take several steps along k at once: neighbours along k share a lane of 32 bits.

Which products do, by their types and the target's features; how their lanes are added up; and what
shifted bytes add too much to panels.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from tilesmith.backends.cpu.dots.plans import BYTES, PAIRS
from tilesmith.backends.cpu.llvm.builder import Builder, bitcast
from tilesmith.backends.cpu.llvm.registers import LType, Register, index, number
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


_FOUR_SHIFTS, _SUMS_AT_ONCE = -0x7F7F7F80, 4
"""Four bytes of 128 each, as a number of 32 bits."""


def add_joined_products(
    builder: Builder, group: int, x: Register, y: Register, total: Register
) -> Register:
    """Adds to each lane the products of ``group`` neighbours; bytes of ``x`` have no sign.

    Denormal numbers of bf16, and sums that are denormal, count as zero.
    """
    assert total.lanes == 16
    if group == BYTES:
        return builder.call("llvm.x86.avx512.vpdpbusd.512", total.type, total, x, y)
    assert group == PAIRS
    halves = LType("bfloat", 2 * total.lanes)
    x, y = bitcast(builder, x, halves), bitcast(builder, y, halves)
    return builder.call("llvm.x86.avx512bf16.dpbf16ps.512", total.type, total, x, y)


def sum_shifts(builder: Builder, panel: Register, steps: Register, width: int) -> Register:
    """-128 times the sums along k of a panel of bytes ``[steps][width]``, one for each column."""
    shift, zero = (number("i32", x, width) for x in (_FOUR_SHIFTS, 0))

    def add(k: Register, sums: Sequence[Register]) -> list[Register]:
        rows = [builder.add(k, index(n)) for n in range(len(sums))]
        spots = [builder.multiply(row, index(width)) for row in rows]
        places = [builder.offset(panel, spot, "i32") for spot in spots]
        vectors = [builder.load(place, zero.type) for place in places]
        pairs = zip(vectors, sums)
        return [add_joined_products(builder, BYTES, shift, x, y) for x, y in pairs]

    # One sum after the other would wait for the instruction each time.
    whole, start = builder.round_down(steps, _SUMS_AT_ONCE), [zero] * _SUMS_AT_ONCE
    sums = builder.loop(index(0), whole, index(_SUMS_AT_ONCE), add, start)
    total = reduce(lambda x, y: builder.binary("add", x, y), sums)
    total = builder.loop(whole, steps, index(1), add, [total])[0]
    return builder.binary("sub", zero, total)
