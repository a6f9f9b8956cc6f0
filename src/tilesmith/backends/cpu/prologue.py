"""What a kernel does before the programs of a grid: operands that they share are packed.

Programs find the packed copies in argument slots behind those of the kernel's parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilesmith.backends.cpu.builder import Builder
from tilesmith.backends.cpu.dots.packing import pack
from tilesmith.backends.cpu.dots.panels import Panels
from tilesmith.backends.cpu.dots.plans import order_of
from tilesmith.backends.cpu.dots.views import View
from tilesmith.backends.cpu.elements import ElementEmitter
from tilesmith.backends.cpu.packed_operands import PackedOperand, PackedTensor
from tilesmith.backends.cpu.prepacking import LEAST_PROGRAMS, MOST_BYTES
from tilesmith.backends.cpu.registers import INDEX, POINTER, LType, Register, index
from tilesmith.backends.cpu.threads import RANGE_PARAMETERS, Programs, emit_parallel
from tilesmith.schedule.schedule import CpuOptions

_ALIGNMENT = 64
_HUGE_PAGE = 2 << 20
_WORTHWHILE_BYTES = 4 << 20
"""Where fewer page faults are worth a system call."""
_MADV_HUGEPAGE = 14
_DEPTH = 1024
"""What an unknown k is taken for."""
NULL = Register("null", LType(POINTER))


class Prologue:
    """Packs operands in the entry of a kernel. ``arguments`` has slots from ``first_slot`` on."""

    def __init__(
        self,
        elements: ElementEmitter,
        arguments: Register,
        first_slot: int,
        begin: Callable[[Builder], ElementEmitter],
    ) -> None:
        self._e = elements
        self._b = elements.b
        self.arguments = arguments
        self._first_slot = first_slot
        self._begin = begin
        self._taken: list[Register] = []

    def pack(
        self,
        sources: Sequence[PackedTensor],
        counts: Sequence[Register],
        name: str,
        options: CpuOptions,
    ) -> None:
        """Take memory and fill it, by several threads if it pays."""
        b = self._b
        for number, source in enumerate(sources):
            pointer = self._allocate(source, counts)
            self._taken.append(pointer)
            slot = self._first_slot + number
            b.store(pointer, b.offset(self.arguments, index(slot), INDEX))
            function = f"{name}_pack{number}"
            self._emit_packing(function, source, slot)
            panels = _count_panels(self._e, source)
            if not source.is_certain:
                panels = b.select(b.compare("eq", pointer, NULL), index(0), panels)
            depth = source.extents[0]
            work = (depth if isinstance(depth, int) else _DEPTH) * source.packing.width
            emit_parallel(b, function, Programs(self.arguments, panels, work), options)

    def give_back(self) -> None:
        """Free the memory, when the programs are done."""
        for pointer in self._taken:
            self._b.call_void("free", pointer)
        self._taken.clear()

    def _allocate(self, source: PackedTensor, counts: Sequence[Register]) -> Register:
        """Memory for a packed tensor; none where packing turns out not to pay."""
        b, packing = self._b, source.packing
        size = b.multiply(packed_depth(self._e, source), index(packing.width))
        size = b.multiply(size, index(packing.dtype.itemsize))
        size = b.multiply(size, _count_panels(self._e, source))
        if source.is_certain:
            return _take(b, size)
        programs = index(1)
        for axis in source.shared_axes:
            programs = b.multiply(programs, counts[axis])
        is_shared = b.compare("sge", programs, index(LEAST_PROGRAMS))
        is_small = b.compare("sle", size, index(MOST_BYTES))
        pays = b.binary("and", is_shared, is_small)
        return b.if_else(pays, lambda: [_take(b, size)], lambda: [NULL])[0]

    def _emit_packing(self, name: str, source: PackedTensor, slot: int) -> None:
        b = Builder(self._b.module, name, RANGE_PARAMETERS)
        elements = self._begin(b)
        _, begin, end = b.parameters
        packing = source.packing
        depth, columns = map(elements.extent, source.extents)
        k, n = map(elements.extent, source.strides)
        first = b.multiply(begin, index(packing.width))
        tensor = elements.scalars[source.tensor]
        start = b.offset(tensor, b.multiply(first, n), packing.loaded)
        size = b.multiply(packed_depth(elements, source), index(packing.width))
        target = b.offset(load_slot(b, slot), b.multiply(begin, size), packing.element)
        left, count = b.subtract(columns, first), b.subtract(end, begin)
        panels = Panels(start, n, k, target, left, depth, count)
        pack(b, packing, order_of(n, k), panels)
        b.module.add(b)


def _take(b: Builder, size: Register) -> Register:
    def plain() -> list[Register]:
        return [b.call("aligned_alloc", LType(POINTER), index(_ALIGNMENT), size)]

    def huge() -> list[Register]:
        whole = b.round_down(b.add(size, index(_HUGE_PAGE - 1)), _HUGE_PAGE)
        pointer = b.call("aligned_alloc", LType(POINTER), index(_HUGE_PAGE), whole)
        advice = Register(str(_MADV_HUGEPAGE), LType("i32"))
        b.call("madvise", LType("i32"), pointer, whole, advice)
        return [pointer]

    if size.constant is not None:
        return (huge if size.constant >= _WORTHWHILE_BYTES else plain)()[0]
    return b.if_else(b.compare("sge", size, index(_WORTHWHILE_BYTES)), huge, plain)[0]


def extend_arguments(b: Builder, count: int, more: int) -> Register:
    """The kernel's arguments with room for more behind them."""
    arguments = b.parameters[0]
    if not more:
        return arguments
    copy = b.alloca(INDEX, count + more)
    for number in range(count):
        x = b.load(b.offset(arguments, index(number), INDEX), LType(INDEX))
        b.store(x, b.offset(copy, index(number), INDEX))
    return copy


def load_slot(b: Builder, slot: int) -> Register:
    """A packed copy, in a function whose first parameter is the arguments."""
    return b.load(b.offset(b.parameters[0], index(slot), INDEX), LType(POINTER))


def packed_depth(elements: ElementEmitter, source: PackedTensor) -> Register:
    """Rows of a panel: transposition writes whole vectors along k."""
    b, lanes = elements.b, source.packing.lanes
    depth = elements.extent(source.extents[0])
    return b.round_down(b.add(depth, index(lanes - 1)), lanes)


def _count_panels(elements: ElementEmitter, source: PackedTensor) -> Register:
    columns = elements.extent(source.extents[1])
    return elements.b.ceiling_quotient(columns, index(source.packing.width))


def packed_view(elements: ElementEmitter, operand: PackedOperand, pointer: Register) -> View:
    """The part of a packed tensor that a product reads."""
    b, source = elements.b, operand.source
    packing = source.packing
    strides = index(packing.width), packed_depth(elements, source)
    for begin, stride in zip(operand.begins, strides, strict=True):
        if begin is not None:
            moved = b.multiply(b.index_of(elements.scalars[begin]), stride)
            pointer = b.offset(pointer, moved, packing.element)
    return View(pointer, strides, packing.dtype, packing.width)
