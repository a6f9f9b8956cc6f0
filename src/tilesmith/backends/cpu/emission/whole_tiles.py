"""Emits statements that go through whole tiles one element after the other.

Scans and combinations of the user's own are plain loops along their axis, so that results are those
of a plain loop; lanes of a combination go across lines where the lines do not lie along the last
axis. Lines of a tile are sorted where they lie, by a shell sort; of their first elements alone so
are candidates, whenever there are as many of those as of the first. Printed lines go through C's
``printf``, one for each element with the program's begin and the element's index, and are flushed,
so that those of different threads stay whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from tilesmith.backends.cpu.emission import elements
from tilesmith.backends.cpu.emission.context import NULL, Context
from tilesmith.backends.cpu.emission.nests import is_known_multiple
from tilesmith.backends.cpu.llvm.builder import Builder
from tilesmith.backends.cpu.llvm.instructions import Module
from tilesmith.backends.cpu.llvm.lanes import Lanes, Strided
from tilesmith.backends.cpu.llvm.registers import LType, Register, index, parameters
from tilesmith.backends.cpu.loop_ir.elements import Element, TilePlace, Variable
from tilesmith.backends.cpu.loop_ir.whole_tiles import Combine, Print, Scan, SortLines
from tilesmith.backends.cpu.math.casts import cast, round_to
from tilesmith.backends.cpu.positions.accumulation import Accumulation
from tilesmith.dtypes import F64, I64, DType, ElementKind
from tilesmith.ir.types import Shape

State = tuple[Register, ...]


def emit_scan(context: Context, scan: Scan) -> None:
    """All running combinations of a tile."""
    inside = context.nest(1)
    lengths = [inside.length(dim) for dim in scan.space]
    others = [axis for axis in range(len(lengths)) if axis != scan.along]
    _over_axes(inside, others, lengths.__getitem__, lambda at: _scan_line(at, scan, lengths))


def _over_axes(
    context: Context,
    axes: list[int],
    length: Callable[[int], Register],
    body: Callable[[Context], object],
) -> None:
    """Loops over axes, one position after the other, then ``body``."""
    if not axes:
        body(context)
        return

    def step(position: Register) -> None:
        _over_axes(context.at(axes[0], Strided(position, index(0))), axes[1:], length, body)

    context.builder.count_up(length(axes[0]), step)


def _moved(
    context: Context, item: Scan | Combine, axis: int, length: Register, position: Register
) -> Context:
    """At the element that is taken in as the one of that number."""
    if item.is_reversed:
        last = context.builder.subtract(length, index(1))
        position = context.builder.subtract(last, position)
    return context.at(axis, Strided(position, index(0)))


def _scan_line(context: Context, scan: Scan, lengths: list[Register]) -> None:
    builder, dtype, along = context.builder, scan.value.dtype, scan.along
    kind = Accumulation(scan.kind, dtype, dtype)
    start = kind.start(1)
    if along is None:
        _element(context, scan, kind, tuple(start))
        return
    length = lengths[along]

    def step(position: Register, state: tuple[Register, ...]) -> list[Register]:
        return _element(_moved(context, scan, along, length, position), scan, kind, state)

    builder.loop(index(0), length, index(1), step, start)


def _element(context: Context, scan: Scan, kind: Accumulation, state: State) -> list[Register]:
    builder, dtype = context.builder, scan.value.dtype
    x = elements.register(context, scan.value)
    new = kind.take(builder, list(state), x, index(0), None)
    value = round_to(builder, dtype, new[0]) if dtype.is_low_precision_float else new[0]
    elements.write_tile(context, scan.target, value, elements.tile_position(context, scan.target))
    return new


def emit_combination(context: Context, combine: Combine) -> elements.Results:
    """All lines of the operands, as many at a time as there are lanes across them."""
    count = len(combine.space)
    outer = [axis for axis in range(count) if axis != combine.along]
    has_lanes = bool(outer) and outer[-1] == count - 1
    inside = context.nest(context.function.kernel.target.vector_lanes if has_lanes else 1)
    inside = replace(inside, steps=dict(combine.steps))
    lengths = [inside.length(dim) for dim in combine.space]
    lines = _Lines(combine, lengths)
    if not outer:
        return lines.combine_line(inside)
    if has_lanes:
        last = outer.pop()
        _over_axes(inside, outer, lengths.__getitem__, lambda at: lines.across(at, last))
    else:
        _over_axes(inside, outer, lengths.__getitem__, lines.combine_line)
    return {}


@dataclass(frozen=True)
class _Lines:
    """Lines of elements that are combined, at any place of the other axes."""

    combine: Combine
    lengths: list[Register]

    def across(self, context: Context, axis: int) -> None:
        """Lines side by side, one in each lane."""
        builder, width, length = context.builder, context.lanes.width, self.lengths[axis]
        end = builder.round_down(length, width)

        def lanes_at(position: Register, mask: Register | None) -> None:
            lanes = Lanes(width, mask)
            self.combine_line(context.at(axis, Strided(position, index(1)), lanes))

        builder.loop(index(0), end, index(width), lambda position, _: lanes_at(position, None))
        if is_known_multiple(length, end):
            return
        rest = builder.subtract(length, end)
        is_open = builder.compare("sgt", rest, index(0))
        builder.if_else(is_open, lambda: lanes_at(end, builder.first_lanes(rest, width)))

    def combine_line(self, context: Context) -> elements.Results:
        builder, along = context.builder, self.combine.along
        if along is None:
            state = self._note(context, self._elements(context))
        elif self.lengths[along].constant:
            state = self._along(context, along)
        else:
            is_filled = builder.compare("sgt", self.lengths[along], index(0))
            nothing = partial(self._nothing, context)
            state = builder.if_else(is_filled, lambda: self._along(context, along), nothing)
        return {} if self.combine.is_scan else self._write_all(context, state)

    def _along(self, context: Context, along: int) -> State:
        """The combination of all elements, of which there is at least one."""
        length = self.lengths[along]
        start = _moved(context, self.combine, along, length, index(0))
        first = self._note(start, self._elements(start))

        def step(position: Register, state: State) -> State:
            return self._take(_moved(context, self.combine, along, length, position), state)

        return context.builder.loop(index(1), length, index(1), step, first)

    def _nothing(self, context: Context) -> State:
        pairs = zip(self.combine.others, self.combine.values)
        return tuple(_spread(context, elements.constant(context, x, v.dtype)) for x, v in pairs)

    def _elements(self, context: Context) -> State:
        return tuple(_spread(context, elements.register(context, x)) for x in self.combine.values)

    def _take(self, context: Context, state: State) -> State:
        given = zip(self.combine.args, (*state, *self._elements(context)))
        inside = context.with_scalars(dict(given))
        new = tuple(_spread(inside, _scalar(inside, yielded)) for yielded in self.combine.yielded)
        return self._note(inside, new)

    def _note(self, context: Context, state: State) -> State:
        if self.combine.is_scan:
            self._write_all(context, state)
        return state

    def _write_all(self, context: Context, state: State) -> elements.Results:
        scalars: dict[Variable, Register] = {}
        for result, value in zip(self.combine.results, state):
            if isinstance(result, Variable):
                scalars[result] = value
            elif isinstance(result, TilePlace):
                elements.write_tile(context, result, value, elements.tile_position(context, result))
        return scalars


def _scalar(context: Context, variable: Variable) -> Register:
    known = context.scalars.get(variable)
    return elements.register(context, context.steps[variable]) if known is None else known


def _spread(context: Context, x: Register) -> Register:
    return context.builder.splat(x, context.lanes.width)


def emit_sort(context: Context, sort: SortLines) -> None:
    """Sort all lines of a tile."""
    builder, buffer = context.builder, context.function.buffers[sort.tile]
    shape = sort.tile.shape
    name = _require_sort(builder.module, buffer.dtype)
    if sort.count:
        name = _require_selection(builder.module, buffer.dtype, name, sort.count)
    length = context.length(shape[sort.axis])

    def over(axes: list[int], position: Register) -> None:
        if not axes:
            line = builder.offset(buffer.pointer, position, buffer.element)
            builder.call_void(name, line, length, buffer.strides[sort.axis])
            return

        def step(count: Register) -> None:
            moved = builder.multiply(count, buffer.strides[axes[0]])
            over(axes[1:], builder.add(position, moved))

        builder.count_up(context.length(shape[axes[0]]), step)

    over([axis for axis in range(len(shape)) if axis != sort.axis], index(0))


def _require_sort(module: Module, dtype: DType) -> str:
    name = f"sort_{'i' if dtype.kind is ElementKind.SIGNED else 'u'}{dtype.bits}"
    if not module.has(name):
        line = _Line(module, name, dtype)
        line.sort()
        module.add(line.builder)
    return name


def _require_selection(module: Module, dtype: DType, sort: str, count: int) -> str:
    name = f"first_{count}_by_{sort}"
    if not module.has(name):
        line = _Line(module, name, dtype)
        line.select(sort, index(count))
        module.add(line.builder)
    return name


class _Line:
    """The elements of one line. Elements far apart are put in order first, then nearer ones."""

    def __init__(self, module: Module, name: str, dtype: DType) -> None:
        self.builder = Builder(module, name, parameters(("line", "length", "stride"), ("line",)))
        self._kind = LType(f"i{dtype.bits}")
        self._greater = "sgt" if dtype.kind is ElementKind.SIGNED else "ugt"
        self._start, self._length, self._stride = self.builder.parameters

    def sort(self) -> None:
        """One pass for each distance, the last one with neighbours."""
        compare = self.builder.compare
        self.builder.repeat(
            lambda state: compare("sgt", state[0], index(1)), self._pass, (self._length,)
        )

    def select(self, sort: str, count: Register) -> None:
        """The first ones. What is less than the last of them waits behind for the next sort."""
        builder = self.builder
        room = builder.multiply(count, index(2))
        builder.call_void(sort, self._start, builder.minimum(room, self._length), self._stride)

        def is_full(state: tuple[Register, ...]) -> Register:
            return builder.compare("eq", state[0], room)

        def empty(_: tuple[Register, ...]) -> list[Register]:
            builder.call_void(sort, self._start, room, self._stride)
            return [count]

        def take(position: Register, state: tuple[Register, ...]) -> tuple[Register, ...]:
            x, last = self._read(position), self._read(builder.subtract(count, index(1)))
            builder.store(x, self._address(state[0]))
            more = builder.select(builder.compare(self._greater, last, x), index(1), index(0))
            return builder.repeat(is_full, empty, (builder.add(state[0], more),))

        filled = (builder.minimum(count, self._length),)
        (filled,) = builder.loop(room, self._length, index(1), take, filled)
        builder.call_void(sort, self._start, filled, self._stride)

    def _pass(self, state: tuple[Register, ...]) -> list[Register]:
        # Each distance 5/11 of the one before: about n^1.25 comparisons for any input met so far.
        builder = self.builder
        scaled = builder.subtract(builder.multiply(state[0], index(5)), index(1))
        distance = builder.intrinsic("smax", builder.binary("sdiv", scaled, index(11)), index(1))
        builder.loop(distance, self._length, index(1), lambda at, _: self._insert(at, distance))
        return [distance]

    def _insert(self, position: Register, distance: Register) -> None:
        """Move an element down past the greater ones at that distance."""
        builder = self.builder
        x = self._read(position)

        def is_out_of_order(state: tuple[Register, ...]) -> Register:
            before = builder.subtract(state[0], distance)
            inside = builder.compare("sge", before, index(0))
            other = self._read(builder.intrinsic("smax", before, index(0)))
            return builder.binary("and", inside, builder.compare(self._greater, other, x))

        def move(state: tuple[Register, ...]) -> list[Register]:
            before = builder.subtract(state[0], distance)
            builder.store(self._read(before), self._address(state[0]))
            return [before]

        (place,) = builder.repeat(is_out_of_order, move, (position,))
        builder.store(x, self._address(place))

    def _address(self, position: Register) -> Register:
        scaled = self.builder.multiply(position, self._stride)
        return self.builder.offset(self._start, scaled, self._kind.element)

    def _read(self, position: Register) -> Register:
        return self.builder.load(self._address(position), self._kind)


def emit_print(context: Context, item: Print) -> None:
    """Print the valid elements of all values, in row-major order."""
    for number, (element, shape) in enumerate(item.values):
        label = f"{item.prefix} ({number})" if len(item.values) > 1 else item.prefix
        _print_all(context.nest(1), element, shape, label)
    if not item.values:
        program = _program(context)
        text = item.prefix.replace("%", "%%")
        context.builder.print_formatted(f"at ({_places(program)}) {text}\n", program)
    context.builder.call("fflush", LType("i32"), NULL)


def _print_all(context: Context, element: Element, shape: Shape, label: str) -> None:
    wide = [dim for dim in shape if not dim.is_one]

    def line(inside: Context) -> None:
        places = iter(range(len(wide)))
        lanes = [None if dim.is_one else inside.loops[next(places)] for dim in shape]
        at = [lane.base if isinstance(lane, Strided) else index(0) for lane in lanes]
        _line(inside, element, label, at)

    _over_axes(context, [*range(len(wide))], lambda n: context.length(wide[n]), line)


def _line(context: Context, element: Element, label: str, at: list[Register]) -> None:
    dtype = element.dtype
    x = elements.register(context, element)
    where = f"idx ({_places(at)}) " if at else ""
    program = _program(context)
    # C's spelling, with enough digits to tell any two floats apart.
    form = "%llu" if dtype.kind is ElementKind.UNSIGNED else "%lld"
    if dtype.is_float:
        form = "%#.17g" if dtype.bits == 64 else "%#.9g"
    text = label.replace("%", "%%")
    line = f"at ({_places(program)}) {where}{text}: {form}\n"
    printed = cast(context.builder, dtype, F64 if dtype.is_float else I64, x)
    context.builder.print_formatted(line, [*program, *at, printed])


def _program(context: Context) -> list[Register]:
    return [context.index_of(variable) for variable in context.function.indices]


def _places(indices: Sequence[Register]) -> str:
    return ", ".join(["%lld"] * len(indices))
