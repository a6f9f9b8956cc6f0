"""Computes groups of rows as one, where nothing but the rows differs from group to group.

A tile of a group ends where the group ends, so that most groups have a tile with few rows. Tiles
of all rows have no such ends. They are stored where some group has the row: rows between groups
keep what they had, and a tile of which no row has a group is not computed.
"""

from __future__ import annotations

from dataclasses import replace

from tilesmith.analysis.merged_groups.lanes import row_axes
from tilesmith.analysis.merged_groups.site import BLOCK, MergedGroups, find_merged_groups
from tilesmith.dtypes import BOOL, I32, I64
from tilesmith.ir.function import Block, Function
from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.ops.control_flow import If, Loop, Yield
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import Full, Mask
from tilesmith.ir.ops.memory import Load, Store
from tilesmith.ir.ops.shape import Broadcast, ExpandDims
from tilesmith.ir.tile_writer import TileWriter
from tilesmith.ir.traversal import Substitution, definitions, rewrite_region
from tilesmith.ir.types import ONE, Dim, TileType, Value

TOGETHER = 64
"""Groups whose rows are looked for at once."""


def merge_groups(function: Function) -> Function | None:
    """The same with one loop over all rows; None where groups must be told apart.

    Before::

        grid([%zero], [%groups]) {blocks=[""]} (%group: i32[]) {
          %begin = load(%offsets, none, none, [%group]) : i32[] ...
          loop([%begin, %zero], [%end, %N], [], []) {blocks=["m", "n"]} (%i: i32[], %j: i32[]) {...}
        }

    After::

        grid([%zero, %zero], [%rows, %N]) {blocks=["m", "n"]} (%i: i32[], %j: i32[]) {
          %covered = loop(...) {blocks=["merged"]} : bool[m] ...
          %any = reduce(%covered) {axis=0, kind="any"} : bool[]
          if(%any) () {... store(%out, %acc, %covered, [%i, %j]) ...}
        }
    """
    site = find_merged_groups(function)
    return Merge(function, site).run() if isinstance(site, MergedGroups) else None


class Merge:
    """Writes the function of one site."""

    def __init__(self, function: Function, site: MergedGroups) -> None:
        self._function, self.site = function, site
        self._known = definitions(function.body)
        names = {item.name for item in (*function.blocks, *function.sizes)}
        self._block = BLOCK
        while self._block in names:
            self._block += "_"
        self.rows = site.loop.blocks[site.rows]
        self.first = site.loop.body.args[site.rows]

    def run(self) -> Function:
        """The function with one loop over all rows."""
        loop, grid = self.site.loop, self.site.grid
        write = TileWriter(lambda: loop.loc)
        for op in self._function.body.ops[:-1]:
            write.insert(op)
        begins, ends = ([self._outside(write, v) for v in side] for side in self._bounds(write))
        body = self._body(write)
        write.insert(
            replace(grid, begins=tuple(begins), ends=tuple(ends), blocks=loop.blocks, body=body)
        )
        block = Block(self._block, fixed=TOGETHER)
        return replace(
            self._function,
            blocks=(*self._with_length(), block),
            body=write.close_region(self._function.body.args),
        )

    def _bounds(self, write: TileWriter) -> tuple[list[Value], list[Value]]:
        """Those of the loop, and from the first row to the last."""
        site, kind = self.site, self.first.tile
        begins, ends = list(site.loop.begins), list(site.loop.ends)
        begins[site.rows], ends[site.rows] = write.full(kind, 0), self.length(write)
        return begins, ends

    def length(self, write: TileWriter) -> Value:
        """How many rows there are."""
        length = self.site.length
        if isinstance(length, int):
            return write.full(self.first.tile, length)
        found = self._function.find_parameter(length)
        assert found is not None
        return found

    def _with_length(self) -> tuple[Block, ...]:
        length = self.site.length
        known = length if isinstance(length, int) else None
        blocks = self._function.blocks
        return tuple(replace(b, extent=known) if b.name == self.rows else b for b in blocks)

    def _outside(self, write: TileWriter, value: Value) -> Value:
        """A bound in front of the grid: constants may stand inside."""
        op = self._known.get(value)
        return write.full(value.tile, op.value) if isinstance(op, Full) else value

    def _body(self, write: TileWriter) -> Region:
        site, loop = self.site, self.site.loop
        write.open_region()
        for op in site.kept:
            write.insert(op)
        self.write_tile(write)
        write.effect(Yield)
        return write.close_region(loop.body.args)

    def write_tile(self, write: TileWriter) -> None:
        """What the loop does for a tile, where some group has one of its rows."""
        covered = self._covered(write)
        is_any = write.reduce(covered, 0, "any")
        masked = rewrite_region(
            self.site.loop.body, lambda op: self._masked(op, covered), Substitution()
        )
        choose(write, is_any, Region((), masked.ops))

    def _masked(self, op: Operation, covered: Value) -> Operation | list[Operation]:
        """A store of rows that groups have, or a load of them alone."""
        is_load = isinstance(op, Load) and op.slot in {load.slot for load in self.site.hidden}
        if not isinstance(op, Store) and not is_load:
            return op
        assert isinstance(op, (Load, Store))
        write = TileWriter(lambda: op.loc)
        write.open_region()
        write.insert(with_mask(write, op, covered, self.rows))
        return list(write.close_region().ops)

    def _covered(self, write: TileWriter) -> Value:
        """Which rows of a tile some group has."""
        (first,), (last,) = self.site.grid.begins, self.site.grid.ends
        is_inside = None if self.site.chain is None else self.is_inside(write, self.site.chain)
        line = TileType(BOOL, (Dim.of(self.rows),))
        if is_inside is None:
            start, stop = write.full(line, False), last
        else:
            start = write.spread(is_inside, 0, line.shape)
            stop = write.apply("where", is_inside, first, last)
        number, carried = first.like(), start.like()
        number.name, carried.name = f"{self._block}_begin", "covered"
        write.open_region()
        found = write.apply("or", carried, self._having(write, number))
        write.effect(Yield, values=(found,))
        body, result = write.close_region((number, carried)), carried.like()
        write.insert(
            Loop(
                begins=(first,),
                ends=(stop,),
                steps=(),
                init=(start,),
                blocks=(self._block,),
                body=body,
                results=(result,),
                loc=self.site.loop.loc,
            )
        )
        return result

    def is_inside(self, write: TileWriter, chain: Load) -> Value:
        """Whether a tile lies between where the first group begins and the last one ends.

        Each group ends where the next one begins, so that of the places where groups begin there
        is a last one that is not behind a row; the group there has the row, in whatever order the
        others are.
        """
        (first,), (last,) = self.site.grid.begins, self.site.grid.ends
        has_groups = write.apply("lt", first, last)
        begin, end = (self.bound(write, chain, at, has_groups) for at in (first, last))
        row, stop, begin, end = same_type(write, self.first, self.end_of(write), begin, end)
        return write.apply("and", write.apply("le", begin, row), write.apply("le", stop, end))

    def end_of(self, write: TileWriter) -> Value:
        """Where a tile ends."""
        length = write.cast(self.length(write), self.first.tile.dtype)
        return write.apply("minimum", self.whole_end(write), length)

    def whole_end(self, write: TileWriter) -> Value:
        """Where a tile ends that has all of its rows."""
        index = self.first.tile
        return write.apply("add", self.first, write.size_of(index, self.rows))

    def bound(self, write: TileWriter, chain: Load, at: Value, mask: Value | None = None) -> Value:
        """Where a group begins, as the loop has it."""
        made = replace(chain, mask=mask, indices=(at,), results=(chain.result.like(),))
        return write.cast(write.insert(made).result, self.site.begin.tile.dtype)

    def _having(self, write: TileWriter, number: Value) -> Value:
        """Which rows of a tile the groups of a turn have."""
        site = self.site
        known = _Groups(write, self._block, site)
        group = write.tile_index(number, self._block)
        begin, end, asked = known.bounds(group)
        rows = write.tile_index(self.first, self.rows)
        rows, begin, end = same_type(write, rows, begin, end)
        tile = TileType(BOOL, (Dim.of(self.rows), Dim.of(self._block)))
        rows = write.spread(rows, 1, tile.shape)
        begin, end = (write.spread(v, 0, tile.shape) for v in (begin, end))
        is_in = write.apply("and", write.apply("le", begin, rows), write.apply("lt", rows, end))
        if asked is not None:
            is_in = write.apply("and", is_in, write.spread(asked, 0, tile.shape))
        is_in = write.create(Mask, is_in.tile, x=is_in, fill=False, axes=(1,))
        return write.reduce(is_in, 1, "any")


class _Groups:
    """Where many groups begin and end, by the ops that say so of one."""

    def __init__(self, write: TileWriter, block: str, site: MergedGroups) -> None:
        self._write, self._site = write, site
        self._line = (Dim.of(block),)
        self._found: dict[Value, Value] = {}

    def bounds(self, group: Value) -> tuple[Value, Value, Value | None]:
        """First rows, last rows, and which of the groups are asked for; None: all of them."""
        site = self._site
        self._found[site.grid.body.args[0]] = group
        asked: list[Value | None] = [None]
        for op, depth in site.bounds:
            self._ask(asked, depth)
            self._found[op.result] = self._of_many(op, asked[depth])
        self._ask(asked, len(site.conditions))
        return self._value(site.begin), self._value(site.end), asked[-1]

    def _ask(self, asked: list[Value | None], depth: int) -> None:
        """Add which groups come to a branch, for all branches down to one of that depth."""
        for condition in self._site.conditions[len(asked) - 1 : depth]:
            asked.append(self._both(asked[-1], self._value(condition)))

    def _both(self, one: Value | None, other: Value) -> Value:
        return other if one is None else self._write.apply("and", one, other)

    def _value(self, value: Value) -> Value:
        found = self._found.get(value)
        return self._write.spread(value, 0, self._line) if found is None else found

    def _of_many(self, op: Operation, asked: Value | None) -> Value:
        """The result of an op of scalars for many groups at once."""
        kind = op.result.tile.with_shape(self._line)
        if isinstance(op, Load):
            indices = tuple(map(self._value, op.indices))
            mask = asked if op.mask is None else self._both(asked, self._value(op.mask))
            return self._write.create(
                Load, kind, tensor=op.tensor, mask=mask, indices=indices, slot=op.slot
            )
        assert isinstance(op, (Elementwise, Cast))
        moved = op.with_operands(self._value)
        result = Value(kind, op.result.name, op.loc)
        self._write.insert(replace(moved, results=(result,)))
        return result


def with_mask(write: TileWriter, op: Load | Store, rows: Value, block: str) -> Load | Store:
    """An access of some rows of a tile, whose block that is."""
    value = op.value if isinstance(op, Store) else op.result
    (axis,) = row_axes(value, block)
    mask = _along(write, rows, axis, value.tile.with_dtype(BOOL))
    if op.mask is not None:
        mask = write.apply("and", _whole(write, op.mask, mask.tile), mask)
    return replace(op, mask=mask)


def _along(write: TileWriter, line: Value, axis: int, kind: TileType) -> Value:
    """A line along one axis of a tile, repeated along the others."""
    axes = tuple(place for place in range(kind.rank) if place != axis)
    dims = [ONE if place in axes else dim for place, dim in enumerate(kind.shape)]
    wide = line.tile.with_shape(tuple(dims))
    expanded = write.create(ExpandDims, wide, x=line, axes=axes) if axes else line
    return write.create(Broadcast, line.tile.with_shape(kind.shape), x=expanded)


def _whole(write: TileWriter, mask: Value, kind: TileType) -> Value:
    """A mask with all axes of a tile."""
    missing = tuple(range(kind.rank - mask.tile.rank))
    if missing:
        wide = mask.tile.with_shape((ONE,) * len(missing) + mask.tile.shape)
        mask = write.create(ExpandDims, wide, x=mask, axes=missing)
    if mask.tile.shape == kind.shape:
        return mask
    return write.create(Broadcast, mask.tile.with_shape(kind.shape), x=mask)


def choose(
    write: TileWriter, condition: Value, then: Region, otherwise: Region | None = None
) -> None:
    """A branch, with nothing otherwise unless something is given."""
    write.open_region()
    write.effect(Yield)
    nothing = write.close_region()
    write.effect(If, condition=condition, then=then, otherwise=otherwise or nothing)


def same_type(write: TileWriter, *values: Value) -> tuple[Value, ...]:
    """The same numbers in one type that has all of them."""
    wide = I32 if {value.tile.dtype for value in values} == {I32} else I64
    return tuple(write.cast(value, wide) for value in values)
