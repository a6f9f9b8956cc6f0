"""Maxima of rows and the sums of powers around them from one walk over the rows, not two.

A row that is longer than a program can hold is walked for its maximum, then again for the sum of
``exp(x - maximum)``. Here a few neighbours share a maximum so far and a sum around it; where the
maximum grows, the sum is multiplied once for all of them. After the loop, sums are moved to the
maximum of the row. Sums have terms of the same size as before, and a factor for each growth.

On an H200, us: the divergence of 2048x128256 fp32 logits 1656 with three walks, 1296 with two (and
1247 by torch.compile); the first of the two alone takes 484, which is what memory allows.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf

from tilesmith.backends.triton.optimizations.joined_walks import (
    Definitions,
    Pair,
    Walks,
    find_walks,
)
from tilesmith.backends.triton.optimizations.short_powers import power_around_maximum
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.ops.control_flow import Yield
from tilesmith.ir.ops.shape import Reshape
from tilesmith.ir.tile_writer import TileWriter
from tilesmith.ir.traversal import count_uses, definitions
from tilesmith.ir.types import Dim, Shape, Value
from tilesmith.schedule.schedule import Schedule


def join_walks(function: Function, schedule: Schedule) -> Function:
    """The function with such loops joined.

    Before::

        %lanes = loop([%zero], [%n], [], [%lowest]) {blocks=["chunk"]} (%b: i32[], %old) {
          %new = elementwise(%old, %x) {fn="maximum"} : f32[chunk] ...
        }
        %peak = reduce(%lanes) {axis=0, kind="max"} : f32[]
        %powers = loop([%zero], [%n], [], [%zeros]) {blocks=["chunk"]} (%b: i32[], %old) {
          %off = elementwise(%x, %peaks) {fn="sub"} : f32[chunk]
          %term = elementwise(%off) {fn="exp"} : f32[chunk] ...
        }
        %total = reduce(%powers) {axis=0, kind="sum"} : f32[]

    After::

        %peaks, %sums = loop([%zero], [%n], [], [%lowest, %zeros]) {blocks=["chunk"]} ... {
          %near = reshape(%x) : f32[1024, 4]
          %most = reduce(%near) {axis=1, kind="max"} : f32[1024] ...
        }
        %peak = reduce(%peaks) {axis=0, kind="max"} : f32[]
        %total = reduce(%moved) {axis=0, kind="sum"} : f32[]
    """
    return function.with_body(_joined(function.body, definitions(function.body), schedule))


def _joined(region: Region, known: Definitions, schedule: Schedule) -> Region:
    """A region with all of its walks joined, those of regions inside of it first."""
    inner = [
        op.with_regions(tuple(_joined(part, known, schedule) for part in op.regions()))
        for op in region.ops
    ]
    region = region.with_ops(inner)
    while walks := find_walks(region.ops, known, count_uses(region), schedule):
        region = region.with_ops(_OneWalk(walks, schedule).ops(region.ops))
        known.update(definitions(region))
    return region


class _OneWalk:
    """Writes one loop for two."""

    def __init__(self, walks: Walks, schedule: Schedule) -> None:
        self._walks, self._schedule = walks, schedule
        self._write = TileWriter(lambda: walks.first.loc)

    def ops(self, ops: tuple[Operation, ...]) -> list[Operation]:
        """The ops of the region with the loop and its ends in place of the first loop."""
        walks = self._walks
        dropped = {walks.second, *(pair.peak for pair in walks.pairs)}
        dropped |= {pair.total for pair in walks.pairs}
        self._emit()
        made = self._write.close_region().ops
        found: list[Operation] = []
        for op in ops:
            if op is walks.first:
                found.extend(made)
            elif op not in dropped:
                found.append(op)
        return found

    def _emit(self) -> None:
        write, first, pairs = self._write, self._walks.first, self._walks.pairs
        shapes = [self._grouped(pair.x.tile.shape)[:-1] for pair in pairs]
        lowest = [write.full(p.x.tile.with_shape(s), -inf) for p, s in zip(pairs, shapes)]
        zeros = [write.full(p.x.tile.with_shape(s), 0.0) for p, s in zip(pairs, shapes)]
        init = (*lowest, *zeros)
        carried = [value.like() for value in init]
        write.open_region()
        for op in first.body.ops:
            if not isinstance(op, Yield) and not {*op.results} & {*first.body.yielded}:
                write.insert(op)
        found = [self._turn(p, *old) for p, *old in zip(pairs, carried, carried[len(pairs) :])]
        write.insert(Yield(values=tuple(v for values in zip(*found) for v in values)))
        body = write.close_region((*first.body.args[:1], *carried))
        results = tuple(value.like() for value in init)
        write.insert(replace(first, init=init, body=body, results=results))
        for pair, *lanes in zip(pairs, results, results[len(pairs) :]):
            self._finish(pair, *lanes)

    def _grouped(self, shape: Shape) -> Shape:
        """Neighbours along an axis of their own."""
        group = self._walks.group
        count = self._schedule.physical(shape[-1]) // group
        return (*shape[:-1], Dim.of(count), Dim.of(group))

    def _turn(self, pair: Pair, peak: Value, total: Value) -> tuple[Value, Value]:
        """A maximum and a sum of powers with one more group of neighbours."""
        write = self._write
        near = pair.x.tile.with_shape(self._grouped(pair.x.tile.shape))
        x = write.create(Reshape, near, x=pair.x)
        axis = near.rank - 1
        most = write.apply("maximum", peak, write.reduce(x, axis, "max"))
        # Lanes of nothing but -inf so far have no power to shift.
        is_lowest = write.apply("eq", most, write.full(most.tile, -inf))
        anchor = write.apply("where", is_lowest, write.full(most.tile, 0.0), most)
        less = write.apply("sub", peak, anchor)
        kept = write.apply("mul", total, power_around_maximum(write, pair.fn, less))
        off = write.apply("sub", x, write.spread(anchor, axis, near.shape))
        powers = write.reduce(power_around_maximum(write, pair.fn, off), axis, "sum")
        return most, write.apply("add", kept, powers)

    def _finish(self, pair: Pair, peaks: Value, totals: Value) -> None:
        """The maximum of the row, and all sums around it."""
        write, axis = self._write, peaks.tile.rank - 1
        write.insert(replace(pair.peak, x=peaks))
        off = write.apply("sub", peaks, write.spread(pair.peak.result, axis, peaks.tile.shape))
        moved = write.apply("mul", totals, power_around_maximum(write, pair.fn, off))
        write.insert(replace(pair.total, x=moved))
