"""Moves loops over independent tiles into the grid: groups of rows, experts, ragged sequences.

A program for each group walks all tiles of its group, and the device is as busy as there are
groups. Tiles that are stored to places of their own may be computed by anybody. An axis whose ends
are known before the launch becomes an axis of the grid. The tiles of one whose ends are loaded are
shared out among some programs in equal parts: nobody knows how many there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilesmith.analysis.spread_loops import (
    BLOCK,
    SHARES,
    SpreadLoop,
    find_spread_loop,
)
from tilesmith.ir.function import Block, Function
from tilesmith.ir.operation import Region
from tilesmith.ir.ops.control_flow import If
from tilesmith.ir.ops.indexing import Full
from tilesmith.ir.tile_writer import TileWriter
from tilesmith.ir.traversal import definitions, walk
from tilesmith.ir.types import Value


def spread_loops(function: Function) -> Function | None:
    """The same with more programs, that have fewer tiles; None where that is not certain.

    Before::

        grid([%zero], [%groups]) {blocks=[""]} (%group: i32[]) {
          %begin = load(%offsets, none, none, [%group]) : i32[] ...
          loop([%begin, %zero], [%end, %N], [], []) {blocks=["m", "n"]} (%i: i32[], %j: i32[]) {...}
        }

    After::

        grid([%zero, %zero, %zero], [%groups, %shares, %N]) {blocks=["", "shares", "n"]} (...) {
          %begin = load(%offsets, none, none, [%group]) : i32[] ...
          loop([%first], [%last], [], []) {blocks=["m"]} (%i: i32[]) {...}
        }
    """
    site = find_spread_loop(function)
    return None if site is None else _Spread(function, site).run()


class _Spread:
    """Writes the function of one site."""

    def __init__(self, function: Function, site: SpreadLoop) -> None:
        self._function = function
        self._site = site
        self._known = definitions(function.body)
        names = {item.name for item in (*function.blocks, *function.sizes)}
        self._block = BLOCK
        while self._block in names:
            self._block += "_"
        self._share = site.grid.body.args[0].like()
        self._share.name = f"{self._block}_begin"

    def run(self) -> Function:
        site, grid = self._site, self._site.grid
        write = TileWriter(lambda: site.loop.loc)
        for op in self._function.body.ops[:-1]:
            write.insert(op)
        begins, ends, blocks, args = grid.begins, grid.ends, grid.blocks, grid.body.args
        if site.shared is not None:
            index = self._share.tile
            begins, ends = (*begins, write.full(index, 0)), (*ends, write.full(index, SHARES))
            blocks, args = (*blocks, self._block), (*args, self._share)
        for axis in site.moved:
            begin, end = (self._outside(write, v[axis]) for v in (site.loop.begins, site.loop.ends))
            begins, ends = (*begins, begin), (*ends, end)
            blocks, args = (*blocks, site.loop.blocks[axis]), (*args, site.loop.body.args[axis])
        body = self._rewritten(write, grid.body, args)
        write.insert(replace(grid, begins=begins, ends=ends, blocks=blocks, body=body))
        return replace(
            self._function,
            blocks=self._blocks(),
            body=write.close_region(self._function.body.args),
        )

    def _outside(self, write: TileWriter, value: Value) -> Value:
        """A bound in front of the grid: constants may stand inside."""
        op = self._known.get(value)
        return write.full(value.tile, op.value) if isinstance(op, Full) else value

    def _blocks(self) -> tuple[Block, ...]:
        old = self._function.blocks
        if self._site.shared is None:
            return old
        slot = max((b.slot for b in old if b.slot is not None), default=-1) + 1
        return (*old, Block(self._block, slot=slot, extent=SHARES, high=SHARES))

    def _rewritten(self, write: TileWriter, region: Region, args: tuple[Value, ...]) -> Region:
        """A region around the loop, or the loop's own, with other bounds."""
        write.open_region()
        for op in region.ops:
            if op is self._site.loop:
                self._write_loop(write)
            elif isinstance(op, If) and self._site.loop in walk(op.then):
                then = self._rewritten(write, op.then, op.then.args)
                write.insert(replace(op, then=then))
            else:
                write.insert(op)
        return write.close_region(args)

    def _write_loop(self, write: TileWriter) -> None:
        site, loop = self._site, self._site.loop
        if not site.kept:
            for op in loop.body.ops[:-1]:
                write.insert(op)
            return
        begins, ends = list(loop.begins), list(loop.ends)
        if site.shared is not None:
            begins[site.shared], ends[site.shared] = self._part(write, site.shared)

        def kept(values: Sequence[Value]) -> tuple[Value, ...]:
            return tuple(values[axis] for axis in site.kept)

        blocks = tuple(loop.blocks[axis] for axis in site.kept)
        body = replace(loop.body, args=kept(loop.body.args))
        write.insert(replace(loop, begins=kept(begins), ends=kept(ends), blocks=blocks, body=body))

    def _part(self, write: TileWriter, axis: int) -> tuple[Value, Value]:
        """Where the tiles of one program begin and end: as many for each as for the others."""
        begin, end = self._site.loop.begins[axis], self._site.loop.ends[axis]
        kind = begin.tile
        share = write.cast(self._share, kind.dtype)
        size, one = write.size_of(kind, self._block), write.full(kind, 1)
        number = write.apply("floordiv", share, size)
        programs = write.apply("floordiv", write.full(kind, SHARES), size)
        tile = write.size_of(kind, self._site.loop.blocks[axis])

        def parts(length: Value, part: Value) -> Value:
            more = write.apply("sub", write.apply("add", length, part), one)
            return write.apply("floordiv", more, part)

        tiles = parts(write.apply("sub", end, begin), tile)
        length = write.apply("mul", parts(tiles, programs), tile)
        first = write.apply("add", begin, write.apply("mul", number, length))
        return first, write.apply("minimum", write.apply("add", first, length), end)
