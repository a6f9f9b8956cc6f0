"""Runs a product whose rows are reduced in two launches, without programs that wait.

A function after the standard passes goes in. What comes out reduces rows of a scratch matrix; its
``before`` is the product that fills the matrix, tile by tile. The end of a launch costs less than
programs that meet while the matrix stays in the shared cache. Nothing comes out where that is not
certain.
"""

from __future__ import annotations

from dataclasses import replace

from typing_extensions import override

from tilesmith.analysis.row_products import RowProduct, find_row_product
from tilesmith.ir.function import Block, Function, Parameter
from tilesmith.ir.operation import Region
from tilesmith.ir.ops.indexing import BlockSize
from tilesmith.ir.tile_writer import TileWriter
from tilesmith.ir.traversal import bound_blocks, values_used_by, walk
from tilesmith.ir.types import TensorType
from tilesmith.passes.row_launches.memory import ThroughMemory


def reduce_in_own_launch(function: Function) -> Function | None:
    """The rows of a product that was computed before; None where that is not certain.

    Before::

        grid([%zero], [%M]) {blocks=["m"]} (%b: i32[]) {
          %acc = loop([%zero], [%K], [], [%init]) {blocks=["k"]} : f32[m, 2048] ...
          %s = reduce(%acc) {axis=1, kind="sum"} : f32[m]
          store(%out, %s, none, [%i])
        }

    After, behind ``grid([%zero, %zero], [%M, %N])`` that stores tiles of the product::

        grid([%zero], [%M]) {blocks=["m"]} (%b: i32[]) {
          %acc = load(%row_scratch, none, [%i1, %j1]) : f32[m, 2048]
          %s = reduce(%acc) {axis=1, kind="sum"} : f32[m]
          store(%out, %s, none, [%i])
        }

    Blocks keep their slots; those of the product are the earlier launch's own.
    """
    site = find_row_product(function)
    if site is None or not _may_part(function, site):
        return None
    return _Launches(function, site).run()


def _may_part(function: Function, site: RowProduct) -> bool:
    """Whether the product does not ask for the rows of a program, and sizes are known."""
    ops = walk(Region((), (*site.before, site.loop)))
    kinds = [p.value.type for p in function.parameters]
    sizes = [s for t in kinds if isinstance(t, TensorType) for s in (*t.shape, *t.strides)]
    is_static = not function.sizes and all(isinstance(size, int) for size in sizes)
    return is_static and not any(isinstance(op, BlockSize) for op in ops)


class _Launches(ThroughMemory):
    """Writes both functions of one site."""

    def __init__(self, function: Function, site: RowProduct) -> None:
        super().__init__(function, site)
        self.row_block = site.row_block

    @override
    def run(self) -> Function:
        write = TileWriter(lambda: self.site.loc)
        for op in self._function.body.ops[:-1]:
            write.insert(op)
        write.insert(replace(self.site.grid, body=self._rows(write)))
        body = write.close_region(self._function.body.args)
        parameters, before = self._parameters(), self._product_of(super().run())
        return replace(self._function, parameters=parameters, body=body, before=before)

    def _product_of(self, function: Function) -> Function:
        """The grid that stores tiles of the product, as a function of its own."""
        used = set(values_used_by(function.body.ops))
        stepped = {block for op in walk(function.body) for block in bound_blocks(op)}
        blocks = [block for block in function.blocks if block.name in stepped]
        free = [block.name for block in blocks if block.slot is not None]
        return Function(
            name=f"{function.name}_product",
            parameters=tuple(
                Parameter(p.value, p.value.name) if p.value is self.scratch else p
                for p in function.parameters
                if p.value in used
            ),
            blocks=tuple(
                replace(b, slot=free.index(b.name)) if b.name in free else b for b in blocks
            ),
            sizes=(),
            body=function.body,
            is_first=True,
        )

    @override
    def _new_blocks(self, slot: int) -> tuple[Block, ...]:
        return (Block(self.column_block, slot=slot, extent=self.site.num_columns),)
