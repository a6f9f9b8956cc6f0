"""A product with one column is a sum along each row: lanes go along the row, none is idle.

In a register block all lanes but one would compute columns that are not there. A sum also reads
rows where they are, however they were chosen; an operand of a product would be copied.
"""

from __future__ import annotations

from tilesmith.dtypes import F32, F64
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.shape import ExpandDims
from tilesmith.ir.tile_writer import TileWriter
from tilesmith.ir.traversal import Definitions, apply_rules


def sum_rows(function: Function) -> Function:
    """The same with sums in place of products with one column.

    Before::

        %new = dot(%x, %y, %acc) : f32[m, 1]

    After::

        %line = reshape(%y) : f32[k]
        %wide = broadcast(expand_dims(%line)) : f32[m, k]
        %terms = elementwise(%x, %wide) {fn="mul"} : f32[m, k]
        %sums = reduce(%terms) {axis=1, kind="sum"} : f32[m]
        %new = elementwise(expand_dims(%sums), %acc) {fn="add"} : f32[m, 1]
    """
    return apply_rules(function, [_sum_rows])


def is_sum_of_rows(op: Dot) -> bool:
    """Whether a product is carried out as sums: of floats, in the precision of the result."""
    lhs, rhs, result = op.lhs.tile, op.rhs.tile, op.result.tile
    is_line = lhs.rank == 2 and rhs.shape[1].is_one and not rhs.shape[0].is_one
    return is_line and lhs.dtype.is_float and rhs.dtype.is_float and result.dtype in (F32, F64)


def _sum_rows(op: Operation, defined_by: Definitions) -> list[Operation] | None:
    if not isinstance(op, Dot) or not is_sum_of_rows(op):
        return None
    write, result = TileWriter(lambda: op.loc), op.result.tile
    x, y = (write.cast(value, result.dtype) for value in (op.lhs, op.rhs))
    line = write.line(y, y.tile.shape[:1])
    terms = write.apply("mul", x, write.spread(line, 0, x.tile.shape))
    sums = write.reduce(terms, 1, "sum")
    column = write.create(ExpandDims, result, x=sums, axes=(1,))
    if op.acc is not None:
        write.apply("add", column, op.acc)
    return [*write.close_region().ops]
