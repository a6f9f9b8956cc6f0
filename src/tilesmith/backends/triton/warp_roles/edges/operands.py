"""Kept operands in registers: a group reads its rows once for a tile instead of in every turn.

For 64 rows by 128 columns, matrix units read a third of all operands for the rows, and groups
share what shared memory delivers: 1.495 instead of 1.582 ms for bf16 attention of 4x32x4096x128 on
an H200. Two loops, with masks and without, have no registers left for that: 0.96 instead of 0.84.
Turns of two parts, gradients of queries: 2.57 instead of 2.72 ms for 8x32x4096x64, causal 1.50
instead of 1.55. Those of 4x32x4096x128 run at what the card's power allows: 2.16 with the operand
of the deferred product held, 2.19 with both or none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod

from tilesmith.backends.triton.emission.spelling import triton_dtype
from tilesmith.backends.triton.warp_roles.copies import Shared
from tilesmith.backends.triton.warp_roles.emitter import RoleEmitter
from tilesmith.backends.triton.warp_roles.layouts import WARPS_PER_GROUP, Layout
from tilesmith.backends.triton.warp_roles.order import find_order
from tilesmith.backends.triton.warp_roles.plan import Product, RolePlan
from tilesmith.ir.ops.memory import Load
from tilesmith.ir.types import Dim, Shape, Value

GROUP_REGISTERS = {1: 240, 2: 240, 3: 160}
"""Of a thread that computes, by number of groups."""
WIDEST_IN_PARTS = 64
"""Columns of sums in turns of two parts that leave registers for all operands, masks or not."""
OTHER_REGISTERS = 30
"""For addresses, masks and values of rows."""
THREADS = 32 * WARPS_PER_GROUP


def tiles_in_registers(plan: RolePlan) -> Iterator[tuple[Shape, int]]:
    """Shape and bits of each tile that lives through a turn."""
    order = find_order(plan)
    for product in plan.products:
        yield product.dot.result.tile.shape, 32
    # In a turn of two parts, operands of the second take the place of what they are made of.
    for product in plan.late if order is None else order.first_sums:
        if product.lhs is None:
            tile = product.dot.lhs.tile
            yield tile.shape, tile.dtype.bits
    for op in plan.between:
        if isinstance(op, Load):
            yield op.result.tile.shape, op.result.tile.dtype.bits


def find_held(
    plan: RolePlan, physical: Callable[[Dim], int], groups: int, *, is_masked: bool
) -> list[Product]:
    """Early products whose left operand fits into registers; ``physical``: sizes for a group."""

    def count(shape: Shape, bits: int) -> int:
        return prod(map(physical, shape)) * bits // 32 // THREADS

    taken = OTHER_REGISTERS + sum(count(*tile) for tile in tiles_in_registers(plan))
    found: list[Product] = []
    for product in _wanted(plan, physical, is_masked=is_masked):
        tile = product.dot.lhs.tile
        if product.lhs in plan.kept:
            taken += count(tile.shape, tile.dtype.bits)
            found += [product] if taken <= GROUP_REGISTERS[groups] else []
    return found


def _wanted(
    plan: RolePlan, physical: Callable[[Dim], int], *, is_masked: bool
) -> Sequence[Product]:
    """Products that were faster with their left operand in registers."""
    order = find_order(plan)
    widest = max(physical(product.dot.result.tile.shape[-1]) for product in plan.late)
    if order is not None and widest <= WIDEST_IN_PARTS:
        return plan.early
    if is_masked:
        return ()
    return plan.early if order is None else order.deferred


def hold_operands(
    emitter: RoleEmitter,
    shared: Shared,
    view: Callable[[Load, Value, str], str],
    *,
    is_masked: bool,
) -> dict[Product, str]:
    """Read kept operands for which there are registers; their names."""
    held: dict[Product, str] = {}
    physical = emitter.schedule.physical
    for product in find_held(shared.plan, physical, shared.groups, is_masked=is_masked):
        load, operand = product.lhs, product.dot.lhs
        assert load is not None
        place, width = view(load, operand, "piece"), 4 // operand.tile.dtype.itemsize
        layout = f"gl.DotOperandLayout(0, {shared.layouts[product.dot.result]}, {width})"
        held[product] = emitter.spelling.names.fresh(f"{load.tensor.name}_operand")
        emitter.writer.statement(f"{held[product]} = {place}.load", [layout])
    return held


def first_value(emitter: RoleEmitter, value: Value, layout: Layout | None) -> str:
    """What a carried value is before the first turn, where the loop keeps it."""
    expr = emitter.expr(value)
    if layout is None:
        return str(emitter.exact(value))
    if expr.is_untyped or not expr.shape:
        shape, dtype = emitter.spelling.shape(value.tile.shape), triton_dtype(value.tile.dtype)
        return f"gl.full({shape}, {expr}, {dtype}, {layout})"
    return f"gl.set_auto_layout({emitter.exact(value)}, {layout})"
