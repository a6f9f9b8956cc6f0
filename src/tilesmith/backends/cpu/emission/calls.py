"""Emits statements that become calls: sorting and printing.

Every line of a stored tile is put in order where it lies, by a shell sort. Printed lines go through
C's ``printf``, one for each element with the program's begin and the element's index, and are
flushed, so that those of different threads stay whole.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilesmith.backends.cpu.emission.context import Context
from tilesmith.backends.cpu.emission.elements import register
from tilesmith.backends.cpu.llvm.builder import Builder
from tilesmith.backends.cpu.llvm.instructions import Module
from tilesmith.backends.cpu.llvm.lanes import Strided
from tilesmith.backends.cpu.llvm.registers import INDEX, POINTER, LType, Register, index
from tilesmith.backends.cpu.loop_ir.elements import Element
from tilesmith.backends.cpu.loop_ir.whole_tiles import Print, SortLines
from tilesmith.backends.cpu.math.casts import cast
from tilesmith.dtypes import F64, I64, DType, ElementKind
from tilesmith.ir.types import Shape

_PARAMETERS = [("line", LType(POINTER)), ("length", LType(INDEX)), ("stride", LType(INDEX))]


def emit_sort(context: Context, sort: SortLines) -> None:
    """Sort all lines of a tile."""
    builder, buffer = context.builder, context.function.buffers[sort.tile]
    shape = sort.tile.shape
    name = _require_sort(builder.module, buffer.dtype)
    length = context.length(shape[sort.axis])
    others = [axis for axis in range(len(shape)) if axis != sort.axis]

    def over(axes: list[int], position: Register) -> None:
        if not axes:
            line = builder.offset(buffer.pointer, position, buffer.element)
            builder.call_void(name, line, length, buffer.strides[sort.axis])
            return

        def step(count: Register) -> None:
            moved = builder.multiply(count, buffer.strides[axes[0]])
            over(axes[1:], builder.add(position, moved))

        builder.count_up(context.length(shape[axes[0]]), step)

    over(others, index(0))


def _require_sort(module: Module, dtype: DType) -> str:
    is_signed = dtype.kind is ElementKind.SIGNED
    name = f"sort_{'i' if is_signed else 'u'}{dtype.bits}"
    if not module.has(name):
        builder = Builder(module, name, _PARAMETERS)
        _Line(builder, LType(f"i{dtype.bits}"), "sgt" if is_signed else "ugt").sort()
        module.add(builder)
    return name


class _Line:
    """The elements of one line. Elements far apart are put in order first, then nearer ones."""

    def __init__(self, builder: Builder, kind: LType, greater: str) -> None:
        self._builder = builder
        self._kind = kind
        self._greater = greater
        self._start, self._length, self._stride = builder.parameters

    def sort(self) -> None:
        """One pass for each distance, the last one with neighbours."""
        self._builder.repeat(
            lambda state: self._builder.compare("sgt", state[0], index(1)),
            self._pass,
            (self._length,),
        )

    def _pass(self, state: tuple[Register, ...]) -> list[Register]:
        # Each distance 5/11 of the one before: about n^1.25 comparisons for any input met so far.
        builder = self._builder
        scaled = builder.subtract(builder.multiply(state[0], index(5)), index(1))
        distance = builder.intrinsic("smax", builder.binary("sdiv", scaled, index(11)), index(1))

        def insert(position: Register, _: tuple[Register, ...]) -> None:
            self._insert(position, distance)

        builder.loop(distance, self._length, index(1), insert)
        return [distance]

    def _insert(self, position: Register, distance: Register) -> None:
        """Move an element down past the greater ones at that distance."""
        builder = self._builder
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
        scaled = self._builder.multiply(position, self._stride)
        return self._builder.offset(self._start, scaled, self._kind.element)

    def _read(self, position: Register) -> Register:
        return self._builder.load(self._address(position), self._kind)


_NULL = Register("null", LType(POINTER))


def emit_print(context: Context, item: Print) -> None:
    """Print the valid elements of all values, in row-major order."""
    for number, (element, shape) in enumerate(item.values):
        label = f"{item.prefix} ({number})" if len(item.values) > 1 else item.prefix
        _over(context.nest(1), element, shape, label, ())
    if not item.values:
        program = _program(context)
        context.builder.print_formatted(f"{_at(program)}{_escaped(item.prefix)}\n", program)
    context.builder.call("fflush", LType("i32"), _NULL)


def _over(
    context: Context, element: Element, shape: Shape, label: str, at: tuple[Register, ...]
) -> None:
    """Loops over the dimensions of a tile from the one after ``at`` on, then a line."""
    dim = shape[len(at)] if len(at) < len(shape) else None
    if dim is None:
        _line(context, element, label, at)
    elif dim.is_one:
        _over(context, element, shape, label, (*at, index(0)))
    else:
        loop = len(context.loops)

        def step(position: Register) -> None:
            inside = context.at(loop, Strided(position, index(0)))
            _over(inside, element, shape, label, (*at, position))

        context.builder.count_up(context.length(dim), step)


def _line(context: Context, element: Element, label: str, at: tuple[Register, ...]) -> None:
    dtype = element.dtype
    x = register(context, element)
    wide = F64 if dtype.is_float else I64
    where = f"idx ({_places(len(at))}) " if at else ""
    program = _program(context)
    line = f"{_at(program)}{where}{_escaped(label)}: {_conversion(dtype)}\n"
    printed = cast(context.builder, dtype, wide, x)
    context.builder.print_formatted(line, [*program, *at, printed])


def _program(context: Context) -> list[Register]:
    return [context.index_of(variable) for variable in context.function.indices]


def _at(program: Sequence[Register]) -> str:
    return f"at ({_places(len(program))}) "


def _places(count: int) -> str:
    return ", ".join(["%lld"] * count)


def _escaped(text: str) -> str:
    return text.replace("%", "%%")


def _conversion(dtype: DType) -> str:
    """C's spelling: enough digits to tell any two floats apart."""
    if dtype.is_float:
        return "%.17g" if dtype.bits == 64 else "%.9g"
    return "%llu" if dtype.kind is ElementKind.UNSIGNED else "%lld"
