"""Parts of few columns: a group reads its rows into registers, once for all parts.

An instruction of 64 rows by 16 columns multiplies for 8 cycles, and reads both from shared memory
for 20. Where rows are in registers it reads columns only. Turns come in pairs, each with registers
of its own: rows of the next turn are read while the products of this one are in flight. Those are
waited for before the next are started, since ptxas takes products one by one where registers that
one reads are written while others are in flight. The other group's products fill the gap.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from typing_extensions import override

from tilesmith.backends.triton.warp_roles.computing import ComputeRole
from tilesmith.backends.triton.warp_roles.edges.operands import (
    GROUP_REGISTERS,
    OTHER_REGISTERS,
    THREADS,
)
from tilesmith.backends.triton.warp_roles.emitter import RoleEmitter, num_groups
from tilesmith.backends.triton.warp_roles.first_copies.copies import known_turns
from tilesmith.backends.triton.warp_roles.plan import Product, RolePlan
from tilesmith.backends.triton.warp_roles.protocol import LATE
from tilesmith.ir.ops.indexing import TileIndex
from tilesmith.ir.ops.shape import ExpandDims

FEWEST_COLUMNS = 64
"""Of a part that is multiplied for as long as its rows are read."""
BUFFERS = 2
"""Operands in registers: of the turn that is multiplied, and of the next one."""


def holds_rows(emitter: RoleEmitter, plan: RolePlan) -> bool:
    """Whether groups read rows into registers: those of several parts, one of few columns."""
    late, physical = plan.late, emitter.schedule.physical
    is_alone = not plan.early and not plan.kept and not plan.rescaling and not plan.cleared
    if not is_alone or len(late) < BUFFERS or emitter.schedule.num_stages < BUFFERS:
        return False
    if late[0].lhs is None or any(product.lhs is not late[0].lhs for product in late):
        return False
    has_ops = any(not isinstance(op, (TileIndex, ExpandDims)) for op in plan.between)
    widths = [physical(product.dot.result.tile.shape[-1]) for product in late]
    operand = late[0].dot.lhs.tile
    # Triton holds no tiles of 8 bits while products read them.
    is_half = operand.dtype.bits == 16
    if has_ops or min(widths) >= FEWEST_COLUMNS or not is_half or not known_turns(emitter, plan):
        return False
    rows = BUFFERS * prod(map(physical, operand.shape)) * operand.dtype.bits // 32
    sums = sum(prod(map(physical, product.dot.result.tile.shape)) for product in late)
    taken = (rows + sums) // THREADS + OTHER_REGISTERS
    return emitter.programs == 1 and taken <= GROUP_REGISTERS[num_groups(emitter.schedule)]


class HeldRowsRole(ComputeRole):
    """What a group of four warps runs for one tile."""

    @override
    def _emit_sums(self) -> None:
        names, writer = self._emitter.spelling.names, self._emitter.writer
        this, other = (names.fresh("rows"), names.fresh("rows"))
        self._read(this, "step")
        with writer.block("for pair in range(turns // 2)"):
            self._line("turn = pair * 2")
            sums = self._start("step + turn", this)
            self._read(other, "step + turn + 1")
            self._finish("step + turn", this, sums)
            sums = self._start("step + turn + 1", other)
            with writer.block("if turn + 2 < turns"):
                self._read(this, "step + turn + 2")
            self._finish("step + turn + 1", other, sums)
        if known_turns(self._emitter, self._plan) % 2:
            self._finish("step + turns - 1", this, self._start("step + turns - 1", this))

    def _start(self, event: str, held: str) -> list[str]:
        """Start the products of a turn, by rows in registers; their names."""
        late = self._plan.late
        self._products.held = {product: self._of_layout(product, held) for product in late}
        return [self._products.start_sum(product, event) for product in late]

    def _finish(self, event: str, held: str, sums: Sequence[str]) -> None:
        """Wait for products, whose operands must not be reused before; hand their tiles back."""
        late = self._plan.late
        names = [self._products.names[self._products.carried(product)] for product in late]
        self._products.wait_products([*names, held], [*sums, held], 0)
        self._products.release(LATE, event)

    def _read(self, held: str, event: str) -> None:
        """The rows of an event, as soon as they are there."""
        product = self._plan.late[0]
        assert product.lhs is not None
        self._line(self._shared.rings[LATE].wait_full(event))
        place = self._products.view(product.lhs, product.dot.lhs, event)
        self._emitter.writer.statement(f"{held} = {place}.load", [self._layout(product)])

    def _of_layout(self, product: Product, held: str) -> str:
        """The same registers for another part."""
        wanted = self._layout(product)
        is_first = wanted == self._layout(self._plan.late[0])
        return held if is_first else f"gl.convert_layout({held}, {wanted})"

    def _layout(self, product: Product) -> str:
        width = 4 // product.dot.lhs.tile.dtype.itemsize
        return f"gl.DotOperandLayout(0, {self._shared.layouts[product.dot.result]}, {width})"
