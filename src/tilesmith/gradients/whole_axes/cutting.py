"""Gradients of tensors that a program loads whole are added up tile by tile.

All programs use all of ``w[:, :]``, so each adds to all of its gradient. In a loop over tiles of
that gradient the update is like those of other factors, which get grids of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tilesmith.gradients.own_grids import is_product
from tilesmith.gradients.whole_axes.narrowing import CannotCutError, Narrowing, TiledAxis
from tilesmith.ir.function import Block, Function
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.control_flow import Grid, Loop, Yield
from tilesmith.ir.ops.indexing import Arange
from tilesmith.ir.ops.memory import Atomic
from tilesmith.ir.ops.shape import ExpandDims
from tilesmith.ir.tile_writer import TileWriter
from tilesmith.ir.traversal import definitions, walk
from tilesmith.ir.types import Dim, Value


def cut_whole_axes(function: Function) -> Function:
    """The function with loops around products that programs add to whole axes.

    Before::

        atomic(%grad_w, dot(%x_turned, %grad), [%all, %every])

    After::

        loop([%0, %0], [%k, %n]) {blocks=["k", "n"]} (%k_begin, %n_begin) {
          atomic(%grad_w, dot(%x_turned_tile, %grad_tile), [%k_index, %n_index])
        }
    """
    known = definitions(function.body)
    atomics = [op.tensor for op in walk(function.body) if isinstance(op, Atomic)]
    blocks = list(function.blocks)

    def in_tiles(op: Operation) -> tuple[Operation, ...]:
        is_update = isinstance(op, Atomic) and atomics.count(op.tensor) == 1
        if not is_update or op.mask is not None or not is_product(op.value, known):
            return (op,)
        return _in_tiles(op, known, blocks)

    ops = [
        replace(op, body=op.body.with_ops([new for one in op.body.ops for new in in_tiles(one)]))
        if isinstance(op, Grid)
        else op
        for op in function.body.ops
    ]
    if len(blocks) == len(function.blocks):
        return function
    return replace(function, blocks=tuple(blocks), body=function.body.with_ops(ops))


def _in_tiles(
    op: Atomic, known: Mapping[Value, Operation], blocks: list[Block]
) -> tuple[Operation, ...]:
    """A loop over tiles of the whole axes of an update, and its bounds; blocks are added."""
    sizes = {axis: size for axis, size in enumerate(_whole_sizes(op, known)) if size > 1}
    if not sizes or len(op.indices) != op.value.tile.rank:
        return (op,)
    index = op.indices[0].tile.with_shape(())
    outer = TileWriter(lambda: op.loc)
    outer.open_region()
    begin = outer.full(index, 0)
    ends = [outer.full(index, size) for size in sizes.values()]
    names = [f"{op.tensor.name}_{axis}_{len(blocks)}" for axis in sizes]
    args = tuple(Value(index, f"{name}_begin", op.loc) for name in names)
    cuts = {axis: TiledAxis(*pair) for axis, pair in zip(sizes, zip(args, names))}
    writer = TileWriter(lambda: op.loc)
    writer.open_region()
    try:
        writer.insert(Narrowing(known, writer).operands(op, cuts))
    except CannotCutError:
        return (op,)
    writer.effect(Yield, values=())
    blocks += [Block(n, extent=size, loc=op.loc) for n, size in zip(names, sizes.values())]
    outer.insert(
        Loop(
            begins=(begin,) * len(names),
            ends=tuple(ends),
            steps=(),
            init=(),
            blocks=tuple(names),
            body=writer.close_region(args),
            loc=op.loc,
        )
    )
    return outer.close_region().ops


def _whole_sizes(op: Atomic, known: Mapping[Value, Operation]) -> list[int]:
    """The lengths of axes that are whole and of constant length; 0 for others."""
    found: list[int] = []
    for index, size in zip(op.indices, op.tensor.tensor.shape):
        source = known.get(index)
        source = known.get(source.x) if isinstance(source, ExpandDims) else source
        is_whole = isinstance(source, Arange) and source.result.tile.shape[0] == Dim.of(size)
        found.append(size if is_whole and isinstance(size, int) else 0)
    return found
