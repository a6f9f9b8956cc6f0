"""Packing of operands that all programs share, before they run.

The entry of a kernel packs; programs find the copies in argument slots behind those of the kernel's
parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from tilesmith.backends.cpu.dots.packing import pack
from tilesmith.backends.cpu.dots.plans import Panels, order_of
from tilesmith.backends.cpu.dots.shapes import View
from tilesmith.backends.cpu.emission.context import (
    NULL,
    RANGE_PARAMETERS,
    Context,
    begin_function,
    emit_parallel,
)
from tilesmith.backends.cpu.llvm.builder import Builder
from tilesmith.backends.cpu.llvm.registers import INDEX, POINTER, LType, Register, index
from tilesmith.backends.cpu.loop_ir.whole_tiles import (
    LEAST_PROGRAMS,
    MOST_BYTES,
    PackedOperand,
    PackedTensor,
)

_ALIGNMENT = 64
_HUGE_PAGE = 2 << 20
_WORTHWHILE_BYTES = 32 << 20
"""Where fewer page faults are worth a system call. What is smaller comes from glibc's heap again
after some calls, without any; huge pages of 4 MiB cost 1 to 5 ms of the system in every call."""
_MADV_HUGEPAGE = 14
_DEPTH = 1024
"""What an unknown k is taken for."""


def pack_operands(
    context: Context,
    arguments: Register,
    sources: Sequence[PackedTensor],
    counts: Sequence[Register],
    name: str,
) -> list[Register]:
    """Take memory and fill it, by several threads if it pays; gives what is to be freed.

    ``arguments`` has slots for it behind those of the kernel's parameters.
    """
    builder, kernel, taken = context.builder, context.function.kernel, list[Register]()
    for number, source in enumerate(sources):
        own = None if source.size is None else context.function.scratch.find_on_stack(source.size)
        pointer = own or _allocate(context, source, counts)
        taken += [] if own else [pointer]
        slot, function = len(kernel.parameters) + number, f"{name}_pack{number}"
        builder.store(pointer, builder.offset(arguments, index(slot), INDEX))
        inside = begin_function(Builder(builder.module, function, RANGE_PARAMETERS), kernel)
        _emit_packing(inside, source, slot)
        panels = _count_panels(context, source)
        if not source.is_certain:
            panels = builder.select(builder.compare("eq", pointer, NULL), index(0), panels)
        depth = source.extents[0]
        work = (depth if isinstance(depth, int) else _DEPTH) * source.packing.width
        emit_parallel(builder, function, arguments, panels, work, kernel.options)
    return taken


def _emit_packing(context: Context, source: PackedTensor, slot: int) -> None:
    builder, packing = context.builder, source.packing
    _, begin, end = builder.parameters
    depth, columns = map(context.extent, source.extents)
    k, n = map(context.extent, source.strides)
    first = builder.multiply(begin, index(packing.width))
    tensor = context.function.tensors[source.tensor]
    start = builder.offset(tensor, builder.multiply(first, n), packing.loaded)
    size = packing.panel_size(builder, depth)
    packed = load_slot(builder, slot)
    target = builder.offset(packed, builder.multiply(begin, size), packing.element)
    left, count = builder.subtract(columns, first), builder.subtract(end, begin)
    pack(builder, packing, order_of(n, k), Panels(start, n, k, target, left, depth, count))
    builder.module.add(builder)


def _allocate(context: Context, source: PackedTensor, counts: Sequence[Register]) -> Register:
    """Memory for a packed tensor; none where packing turns out not to pay."""
    builder, packing = context.builder, source.packing
    panel = packing.panel_size(builder, context.extent(source.extents[0]))
    size = builder.multiply(panel, index(packing.dtype.itemsize))
    size = builder.multiply(size, _count_panels(context, source))
    if source.is_certain:
        return _take(builder, size)
    shared = [counts[axis] for axis in source.shared_axes]
    programs = reduce(builder.multiply, shared, index(1))
    is_shared = builder.compare("sge", programs, index(LEAST_PROGRAMS))
    is_small = builder.compare("sle", size, index(MOST_BYTES))
    pays = builder.binary("and", is_shared, is_small)
    if source.depth is not None:
        depth = context.extent(source.extents[0])
        is_whole = builder.compare("eq", context.index_of(source.depth), depth)
        pays = builder.binary("and", pays, is_whole)
    return builder.if_else(pays, lambda: [_take(builder, size)], lambda: [NULL])[0]


def _take(builder: Builder, size: Register) -> Register:
    def plain() -> list[Register]:
        return [builder.call("aligned_alloc", LType(POINTER), index(_ALIGNMENT), size)]

    def huge() -> list[Register]:
        whole = builder.round_down(builder.add(size, index(_HUGE_PAGE - 1)), _HUGE_PAGE)
        pointer = builder.call("aligned_alloc", LType(POINTER), index(_HUGE_PAGE), whole)
        advice = Register(str(_MADV_HUGEPAGE), LType("i32"))
        builder.call("madvise", LType("i32"), pointer, whole, advice)
        return [pointer]

    if size.constant is not None:
        return (huge if size.constant >= _WORTHWHILE_BYTES else plain)()[0]
    return builder.if_else(builder.compare("sge", size, index(_WORTHWHILE_BYTES)), huge, plain)[0]


def extend_arguments(builder: Builder, count: int, more: int) -> Register:
    """The kernel's arguments with room for more behind them."""
    arguments = builder.parameters[0]
    if not more:
        return arguments
    copy = builder.alloca(INDEX, count + more)
    for number in range(count):
        x = builder.load(builder.offset(arguments, index(number), INDEX), LType(INDEX))
        builder.store(x, builder.offset(copy, index(number), INDEX))
    return copy


def load_slot(builder: Builder, slot: int) -> Register:
    """A packed copy, in a function whose first parameter is the arguments."""
    return builder.load(builder.offset(builder.parameters[0], index(slot), INDEX), LType(POINTER))


def _count_panels(context: Context, source: PackedTensor) -> Register:
    columns = context.extent(source.extents[1])
    return context.builder.ceiling_quotient(columns, index(source.packing.width))


def packed_view(context: Context, operand: PackedOperand, pointer: Register) -> View:
    """What one product reads of a packed tensor."""
    builder, packing = context.builder, operand.source.packing
    depth = context.extent(operand.source.extents[0])
    strides = index(packing.width // packing.group), packing.whole_vectors(builder, depth)
    for begin, stride in zip(operand.begins, strides, strict=True):
        if begin is not None:
            moved = builder.multiply(context.index_of(begin), stride)
            pointer = builder.offset(pointer, moved, packing.element)
    return View(pointer, strides, packing.dtype, packing.width, packing.group)
