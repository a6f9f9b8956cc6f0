"""Grids for the gradients of factors, also of those that a program loads whole.

All programs use all of ``w[:, :]``, so each adds to all of its gradient. In a loop over tiles of
that gradient the update is like those of other factors, which get grids of their own. What a tile
of it needs of other values follows from the roles of their axes: a kept axis is cut there, too;
one that is summed up, or repeated, is not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from tilesmith.dtypes import DType
from tilesmith.gradients.grids.own_grids import StoredSum, give_own_grids, is_product
from tilesmith.gradients.saved import cost_of
from tilesmith.gradients.transposes import count_computed_transposes, push_transposes
from tilesmith.ir import axis_roles as forms
from tilesmith.ir.axis_roles import Role
from tilesmith.ir.function import Block, Function
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.control_flow import Grid, Loop, Yield
from tilesmith.ir.ops.indexing import Arange
from tilesmith.ir.ops.memory import Atomic
from tilesmith.ir.ops.shape import ExpandDims
from tilesmith.ir.tile_writer import TileWriter
from tilesmith.ir.traversal import definitions, walk
from tilesmith.ir.types import Dim, TileType, Value

LANE_BY_LANE = (
    forms.Kept, forms.Uniform, forms.Inserted, forms.Repeated, forms.Permuted, forms.Picked,
    forms.Gathered, forms.Combined, forms.Contracted, forms.Accessed,
)  # fmt: skip
"""Forms of ops that give some lanes of a kept axis without the others."""


class CannotCutError(Exception):
    """A value needs whole axes."""


@dataclass(frozen=True)
class TiledAxis:
    """The tile that stands for a whole axis."""

    begin: Value
    block: str

    @property
    def dim(self) -> Dim:
        """How long it is."""
        return Dim.of(self.block)


Cuts = Mapping[int, TiledAxis]
"""By the number of an axis."""


class Narrowing:
    """Writes ops again for tiles of whole axes."""

    def __init__(self, known: Mapping[Value, Operation], writer: TileWriter) -> None:
        self._known = known
        self._writer = writer
        self._made: dict[tuple[Value, tuple[tuple[int, TiledAxis], ...]], Value] = {}

    def of(self, value: Value, cuts: Cuts) -> Value:
        """The value with tiles along some axes; itself if there are none."""
        if not cuts:
            return value
        key = value, tuple(sorted(cuts.items(), key=lambda item: item[0]))
        if key not in self._made:
            self._made[key] = self._write(value, cuts)
        return self._made[key]

    def operands(self, op: Operation, cuts: Cuts) -> Operation:
        """The op over narrowed operands."""
        if not isinstance(op.form, LANE_BY_LANE):
            raise CannotCutError
        values: list[Value] = []
        for value, roles in zip(op.operand_values(), op.axis_roles()):
            kept = {i: one.to for i, one in enumerate(roles) if one.role is Role.KEPT}
            own = {i: cuts[to] for i, to in kept.items() if to is not None and to in cuts}
            values.append(self.of(value, own))
        return op.with_operand_list(values)

    def _write(self, value: Value, cuts: Cuts) -> Value:
        op = self._known.get(value)
        if isinstance(op, Arange):
            return self._writer.tile_index(cuts[0].begin, cuts[0].block)
        if op is None or len(op.results) != 1:
            raise CannotCutError
        made = value.like(_cut(value.tile, cuts))
        self._writer.insert(replace(self.operands(op, cuts), results=(made,)))
        return made


def _cut(kind: TileType, cuts: Cuts) -> TileType:
    return kind.with_shape(
        tuple(cuts[i].dim if i in cuts else dim for i, dim in enumerate(kind.shape))
    )


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
        if not isinstance(op, Atomic) or atomics.count(op.tensor) > 1:
            return (op,)
        is_factor = op.mask is None and is_product(op.value, known)
        return _in_tiles(op, known, blocks) if is_factor else (op,)

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


Grids = tuple[Function, Mapping[Value, StoredSum]]
"""A function, and the gradients that grids of their own store."""


@dataclass(frozen=True)
class FactorGrids:
    """Gives grids to the gradients of factors, in the cheapest of several ways."""

    dtypes: Mapping[Value, DType]
    """Element types of gradients that were to be added up in wider ones."""
    simplify: Callable[[Function], Function]

    def give(self, function: Function) -> Grids:
        """Of gradients added to as a whole, and tile by tile, the cheaper."""
        whole, stored = self._sum_up(function)
        cut = cut_whole_axes(function)
        if cut is function:
            return whole, stored
        tiled, more = self._sum_up(cut)
        is_better = len(more) > len(stored) and cost_of(tiled) < cost_of(whole)
        return (tiled, more) if is_better else (whole, stored)

    def _sum_up(self, function: Function) -> Grids:
        """Of two ways to sum up products, the one with fewer transposes of what is computed."""
        plain, stored = give_own_grids(function, self.dtypes)
        if not stored:
            return self._with_few_transposes(function), {}
        plain = self._with_few_transposes(self.simplify(plain))
        count = count_computed_transposes(plain)
        if not count:
            return plain, stored
        other, turned = give_own_grids(function, self.dtypes, can_turn=True)
        other = self._with_few_transposes(self.simplify(other))
        # Its results are turned once, after their loops.
        is_better = count_computed_transposes(other) < count and cost_of(other) <= cost_of(plain)
        return (other, turned) if is_better else (plain, stored)

    def _with_few_transposes(self, function: Function) -> Function:
        """The function with transposes where they cost least, unless more would be computed."""
        before = count_computed_transposes(function)
        if not before:
            return function
        pushed = self.simplify(push_transposes(function))
        is_better = count_computed_transposes(pushed) < before
        return pushed if is_better and cost_of(pushed) <= cost_of(function) else function
