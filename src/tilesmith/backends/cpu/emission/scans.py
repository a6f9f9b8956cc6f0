"""Emits scans and combinations of the user's own: a plain loop along the axis.

Elements are taken in one after the other, so that results are those of a plain loop. Lanes of a
combination go across lines where the lines do not lie along the last axis.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tilesmith.backends.cpu.emission.context import Context
from tilesmith.backends.cpu.emission.elements import constant, register, tile_position, write_tile
from tilesmith.backends.cpu.emission.nests import Results, is_known_multiple
from tilesmith.backends.cpu.llvm.lanes import Lanes, Strided
from tilesmith.backends.cpu.llvm.registers import Register, index
from tilesmith.backends.cpu.loop_ir.elements import TilePlace, Variable
from tilesmith.backends.cpu.loop_ir.whole_tiles import Combine, Scan
from tilesmith.backends.cpu.math.casts import round_to
from tilesmith.backends.cpu.math.reductions import Accumulation


def emit_scan(context: Context, scan: Scan) -> None:
    """All running combinations of a tile."""
    inside = context.nest(1)
    lengths = [inside.length(dim) for dim in scan.space]
    others = [(axis, length) for axis, length in enumerate(lengths) if axis != scan.along]
    over_axes(inside, others, lambda place: _line(place, scan, lengths))


def over_axes(
    context: Context, axes: list[tuple[int, Register]], body: Callable[[Context], None]
) -> None:
    """Loops over axes of these lengths, one position after the other, then ``body``."""
    if not axes:
        body(context)
        return
    axis, length = axes[0]

    def step(position: Register) -> None:
        over_axes(context.at(axis, Strided(position, index(0))), axes[1:], body)

    context.builder.count_up(length, step)


def _line(context: Context, scan: Scan, lengths: list[Register]) -> None:
    builder, dtype, along = context.builder, scan.value.dtype, scan.along
    kind = Accumulation(scan.kind, dtype, dtype)
    start = kind.start(1)
    if along is None:
        _element(context, scan, kind, tuple(start))
        return
    length = lengths[along]

    def step(position: Register, state: tuple[Register, ...]) -> list[Register]:
        if scan.is_reversed:
            last = builder.subtract(length, index(1))
            position = builder.subtract(last, position)
        return _element(context.at(along, Strided(position, index(0))), scan, kind, state)

    builder.loop(index(0), length, index(1), step, start)


def _element(
    context: Context, scan: Scan, kind: Accumulation, state: tuple[Register, ...]
) -> list[Register]:
    builder, dtype = context.builder, scan.value.dtype
    x = register(context, scan.value)
    new = kind.take(builder, list(state), x, index(0), None)
    value = round_to(builder, dtype, new[0]) if dtype.is_low_precision_float else new[0]
    write_tile(context, scan.target, value, tile_position(context, scan.target))
    return new


State = tuple[Register, ...]


def emit_combination(context: Context, combine: Combine) -> Results:
    """All lines of the operands, as many at a time as there are lanes across them."""
    count = len(combine.space)
    outer = [axis for axis in range(count) if axis != combine.along]
    has_lanes = bool(outer) and outer[-1] == count - 1
    inside = context.nest(context.function.kernel.target.vector_lanes if has_lanes else 1)
    inside = replace(inside, steps=dict(combine.steps))
    lengths = [inside.length(dim) for dim in combine.space]
    return _Lines(combine, lengths).over(inside, outer)


@dataclass(frozen=True)
class _Lines:
    """Lines of elements that are combined, at any place of the other axes."""

    combine: Combine
    lengths: list[Register]

    def over(self, context: Context, axes: list[int]) -> Results:
        """Loops over the other axes, then the lines themselves."""
        if not axes:
            return self._combine_line(context)
        if len(axes) == 1 and context.lanes.width > 1:
            self._across(context, axes[0])
            return {}

        def one(position: Register) -> None:
            self.over(context.at(axes[0], Strided(position, index(0))), axes[1:])

        context.builder.count_up(self.lengths[axes[0]], one)
        return {}

    def _across(self, context: Context, axis: int) -> None:
        """Lines side by side, one in each lane."""
        builder, width, length = context.builder, context.lanes.width, self.lengths[axis]
        end = builder.round_down(length, width)

        def lanes_at(position: Register, mask: Register | None) -> None:
            lanes = Lanes(width, mask)
            self._combine_line(context.at(axis, Strided(position, index(1)), lanes))

        builder.loop(index(0), end, index(width), lambda position, _: lanes_at(position, None))
        if is_known_multiple(length, end):
            return
        rest = builder.subtract(length, end)
        is_open = builder.compare("sgt", rest, index(0))
        builder.if_else(is_open, lambda: lanes_at(end, builder.first_lanes(rest, width)))

    def _combine_line(self, context: Context) -> Results:
        builder, along = context.builder, self.combine.along
        if along is None:
            return self._finish(context, self._take_first(context))
        length = self.lengths[along]
        if length.constant:
            return self._finish(context, self._along(context, along))
        is_filled = builder.compare("sgt", length, index(0))
        state = builder.if_else(
            is_filled, lambda: self._along(context, along), lambda: self._nothing(context)
        )
        return self._finish(context, state)

    def _along(self, context: Context, along: int) -> State:
        """The combination of all elements, of which there is at least one."""
        length = self.lengths[along]

        def moved(position: Register) -> Context:
            if self.combine.is_reversed:
                last = context.builder.subtract(length, index(1))
                position = context.builder.subtract(last, position)
            return context.at(along, Strided(position, index(0)))

        first = self._take_first(moved(index(0)))

        def step(position: Register, state: State) -> State:
            return self._take(moved(position), state)

        return context.builder.loop(index(1), length, index(1), step, first)

    def _nothing(self, context: Context) -> State:
        pairs = zip(self.combine.others, self.combine.values)
        return tuple(_spread(context, constant(context, x, v.dtype)) for x, v in pairs)

    def _take_first(self, context: Context) -> State:
        return self._note(context, self._elements(context))

    def _elements(self, context: Context) -> State:
        return tuple(_spread(context, register(context, x)) for x in self.combine.values)

    def _take(self, context: Context, state: State) -> State:
        given = zip(self.combine.args, (*state, *self._elements(context)))
        inside = context.with_scalars(dict(given))
        new = tuple(_spread(inside, _scalar(inside, yielded)) for yielded in self.combine.yielded)
        return self._note(inside, new)

    def _note(self, context: Context, state: State) -> State:
        if self.combine.is_scan:
            self._write_all(context, state)
        return state

    def _finish(self, context: Context, state: State) -> Results:
        return {} if self.combine.is_scan else self._write_all(context, state)

    def _write_all(self, context: Context, state: State) -> Results:
        scalars: dict[Variable, Register] = {}
        for result, value in zip(self.combine.results, state):
            if isinstance(result, Variable):
                scalars[result] = value
            elif isinstance(result, TilePlace):
                write_tile(context, result, value, tile_position(context, result))
        return scalars


def _scalar(context: Context, variable: Variable) -> Register:
    known = context.scalars.get(variable)
    return register(context, context.steps[variable]) if known is None else known


def _spread(context: Context, x: Register) -> Register:
    return context.builder.splat(x, context.lanes.width)
