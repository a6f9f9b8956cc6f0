"""Merged groups without a mask where groups have all rows of a tile, as nearly all tiles are.

Such tiles are stored as those of a plain product are, through the copy engine. Others are stored
once for each group, with the rows that it has. Whether a tile is such a one is known before any row
is: by numbers alone, so that a warp that only copies can tell as well.
"""

from __future__ import annotations

from collections.abc import Callable

from tilesmith.analysis.merged_groups.site import MergedGroups, find_merged_groups
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.ops.control_flow import Loop, Yield
from tilesmith.ir.ops.memory import Load, Store
from tilesmith.ir.tile_writer import TileWriter
from tilesmith.ir.traversal import Substitution, rewrite_region
from tilesmith.ir.types import Value
from tilesmith.passes.merged_groups.merge import Merge, choose, same_type, with_mask


def merge_whole_tiles(function: Function) -> Function | None:
    """The same as ``merge_groups``; None also where groups do not follow one another.

    After::

        grid([%zero, %zero], [%rows, %N]) {blocks=["m", "n"]} (%i: i32[], %j: i32[]) {
          %is_whole = ...
          %is_met = loop([%zero], [%groups_if_not_inside], ...) : bool[] ...
          if(%is_met) () {
            ...
            if(%is_whole) () {store(%out, %acc, none, [%i, %j])}
            () {loop([%zero], [%groups], ...) () {store(%out, %acc, %rows_of_group, [%i, %j])}}
          }
        }
    """
    site = find_merged_groups(function)
    if not isinstance(site, MergedGroups) or site.chain is None or site.hidden:
        return None
    return _WholeTiles(function, site, site.chain).run()


class _WholeTiles(Merge):
    """Writes the function of one site."""

    def __init__(self, function: Function, site: MergedGroups, chain: Load) -> None:
        super().__init__(function, site)
        self._chain = chain

    @property
    def _groups(self) -> tuple[Value, Value]:
        (first,), (last,) = self.site.grid.begins, self.site.grid.ends
        return first, last

    def write_tile(self, write: TileWriter) -> None:
        is_whole = self._is_whole(write)
        first, last = self._groups
        stop = write.apply("where", is_whole, first, last)
        is_met = self._is_met(write, is_whole, stop)
        body = rewrite_region(
            self.site.loop.body, lambda op: self._stored(op, is_whole), Substitution()
        )
        choose(write, is_met, Region((), body.ops))

    def _is_whole(self, write: TileWriter) -> Value:
        """Whether groups have all rows that a tile may have."""
        stop, length = same_type(write, self.whole_end(write), self.length(write))
        is_whole = write.apply("le", stop, length)
        return write.apply("and", self.is_inside(write, self._chain), is_whole)

    def _is_met(self, write: TileWriter, is_whole: Value, stop: Value) -> Value:
        """Whether some group has a row of the tile; groups are asked only where that is open."""
        met = is_whole.like()
        met.name = "is_met"

        def ask(begin: Value, end: Value) -> tuple[Value]:
            row, past, begin, end = same_type(write, self.first, self.whole_end(write), begin, end)
            is_before, is_behind = write.apply("lt", row, end), write.apply("lt", begin, past)
            has_rows = write.apply("and", write.apply("lt", begin, end), is_before)
            return (write.apply("or", met, write.apply("and", has_rows, is_behind)),)

        (found,) = self._each_group(write, stop, {met: is_whole}, ask)
        return found

    def _stored(self, op: Operation, is_whole: Value) -> Operation | list[Operation]:
        """A store of a whole tile, or else of what each group has of it."""
        if not isinstance(op, Store):
            return op
        write = TileWriter(lambda: op.loc)

        def store(begin: Value, end: Value) -> tuple[()]:
            rows = write.tile_index(self.first, self.rows)
            rows, begin, end = same_type(write, rows, begin, end)
            begin, end = (write.spread(v, 0, rows.tile.shape) for v in (begin, end))
            taken = write.apply("and", write.apply("le", begin, rows), write.apply("lt", rows, end))
            write.insert(with_mask(write, op, taken, self.rows))
            return ()

        write.open_region()
        write.open_region()
        write.insert(op)
        write.effect(Yield)
        whole = write.close_region()
        write.open_region()
        self._each_group(write, self._groups[1], {}, store)
        write.effect(Yield)
        choose(write, is_whole, whole, write.close_region())
        return list(write.close_region().ops)

    def _each_group(
        self,
        write: TileWriter,
        stop: Value,
        carried: dict[Value, Value],
        body: Callable[[Value, Value], tuple[Value, ...]],
    ) -> tuple[Value, ...]:
        """A loop over groups, whose body is told where one begins and ends."""
        first = self._groups[0]
        one = write.full(first.tile, 1)
        group = first.like()
        group.name = "group"
        write.open_region()
        begin = self.bound(write, self._chain, group)
        end = self.bound(write, self._chain, write.apply("add", group, one))
        write.effect(Yield, values=body(begin, end))
        region = write.close_region((group, *carried))
        results = tuple(value.like() for value in carried)
        write.insert(
            Loop(
                begins=(first,),
                ends=(stop,),
                steps=(one,),
                init=tuple(carried.values()),
                blocks=("",),
                body=region,
                results=results,
                loc=self.site.loop.loc,
            )
        )
        return results
