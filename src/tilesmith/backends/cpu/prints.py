"""Emits device prints: a line for each element, with the program's begin and the element's index.

Lines go through C's ``printf`` and are flushed, so those of different threads stay whole.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilesmith.backends.cpu.builder import Builder
from tilesmith.backends.cpu.casts import cast
from tilesmith.backends.cpu.coordinates import own_coords
from tilesmith.backends.cpu.elements import ElementEmitter
from tilesmith.backends.cpu.lanes import Strided
from tilesmith.backends.cpu.registers import POINTER, LType, Register, index
from tilesmith.dtypes import F64, I64, DType, Kind
from tilesmith.ir.ops.foreign import Print
from tilesmith.ir.values import Value

_NULL = Register("null", LType(POINTER))


def emit_print(elements: ElementEmitter, op: Print) -> None:
    """Print the valid elements of all values, in row-major order."""
    for number, value in enumerate(op.values):
        label = f"{op.prefix} ({number})" if len(op.values) > 1 else op.prefix
        with elements.nest((), 1):
            _Printer(elements, value, label).over(_wide_axes(value))
    if not op.values:
        position = [elements.b.index_of(elements.scalars[arg]) for arg in elements.program]
        _write(elements.b, f"at ({_places(len(position))}) {_escaped(op.prefix)}", position)
    elements.b.call("fflush", LType("i32"), _NULL)


def _wide_axes(value: Value) -> list[int]:
    return [axis for axis, dim in enumerate(value.tile.shape) if not dim.is_one]


def _places(count: int) -> str:
    return ", ".join(["%lld"] * count)


def _escaped(text: str) -> str:
    return text.replace("%", "%%")


def _write(b: Builder, line: str, arguments: Sequence[Register]) -> None:
    b.print_formatted(f"{line}\n", arguments)


class _Printer:
    def __init__(self, elements: ElementEmitter, value: Value, label: str) -> None:
        self._e = elements
        self._b = elements.b
        self._value = value
        self._label = label
        self._indices: dict[int, Register] = {}

    def over(self, axes: list[int]) -> None:
        """Loops over these axes, then a line."""
        if not axes:
            self._line()
            return
        axis = axes[0]

        def step(position: Register) -> None:
            self._e.loops[len(self._indices)] = Strided(position, index(0))
            self._indices[axis] = position
            with self._e.scope():
                self.over(axes[1:])
            del self._indices[axis]

        self._b.count_up(self._e.length(self._value.tile.shape[axis]), step)

    def _line(self) -> None:
        value, dtype = self._value, self._value.tile.dtype
        x = self._e.register((value, own_coords(value.tile.shape)))
        wide = F64 if dtype.is_float else I64
        position = [self._b.index_of(self._e.scalars[arg]) for arg in self._e.program]
        place = [self._indices.get(axis, index(0)) for axis in range(value.tile.rank)]
        at = f"at ({_places(len(position))}) "
        at += f"idx ({_places(len(place))}) " if place else ""
        line = f"{at}{_escaped(self._label)}: {_conversion(dtype)}"
        _write(self._b, line, [*position, *place, cast(self._b, dtype, wide, x)])


def _conversion(dtype: DType) -> str:
    """C's spelling: enough digits to tell any two floats apart."""
    if dtype.is_float:
        return "%.17g" if dtype.bits == 64 else "%.9g"
    return "%llu" if dtype.kind is Kind.UNSIGNED else "%lld"
