"""Emits matrix products, and the packing of operands that all programs share.

The entry of a kernel packs before the programs of a grid run; they find the packed copies in
argument slots behind those of the kernel's parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

from tilesmith.backends.cpu.dots.packing import pack
from tilesmith.backends.cpu.dots.plans import Panels, order_of
from tilesmith.backends.cpu.dots.product import emit_dot
from tilesmith.backends.cpu.dots.shapes import DotProblem, View
from tilesmith.backends.cpu.emission.context import (
    NULL,
    RANGE_PARAMETERS,
    Context,
    begin_function,
    emit_parallel,
)
from tilesmith.backends.cpu.emission.elements import address_of
from tilesmith.backends.cpu.llvm.builder import Builder
from tilesmith.backends.cpu.llvm.lanes import Strided
from tilesmith.backends.cpu.llvm.registers import INDEX, POINTER, LType, Register, index
from tilesmith.backends.cpu.loop_ir import whole_tiles as loop_ir
from tilesmith.backends.cpu.loop_ir.whole_tiles import (
    LEAST_PROGRAMS,
    MOST_BYTES,
    PackedTensor,
    Product,
)
from tilesmith.backends.cpu.math.casts import round_to
from tilesmith.backends.cpu.positions.memory import Buffer
from tilesmith.dtypes import DType

_ALIGNMENT = 64
_HUGE_PAGE = 2 << 20
_WORTHWHILE_BYTES = 4 << 20
"""Where fewer page faults are worth a system call."""
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
        pointer = _allocate(context, source, counts)
        taken.append(pointer)
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


def _packed_view(context: Context, operand: loop_ir.PackedOperand, pointer: Register) -> View:
    builder, packing = context.builder, operand.source.packing
    depth = context.extent(operand.source.extents[0])
    strides = index(packing.width // packing.group), packing.whole_vectors(builder, depth)
    for begin, stride in zip(operand.begins, strides, strict=True):
        if begin is not None:
            moved = builder.multiply(context.index_of(begin), stride)
            pointer = builder.offset(pointer, moved, packing.element)
    return View(pointer, strides, packing.dtype, packing.width)


def emit_product(context: Context, product: Product) -> None:
    """A product, one matrix after the other where there is a batch."""
    if len(product.shape) == 3:
        _emit_one(context, product, None)
        return
    batch = context.length(product.shape[0])
    context.builder.count_up(batch, lambda number: _emit_one(context, product, number))


def _emit_one(context: Context, product: Product, number: Register | None) -> None:
    builder, lanes = context.builder, context.function.kernel.target.vector_lanes
    out = _view_of_buffer(context, context.function.buffers[product.target], number)
    m, n, k = product.shape[-3:]
    lhs = _view(context, product.lhs, number)
    problem = DotProblem(
        extents=(context.length(m), context.length(n), context.length(k)),
        bounds=product.bounds,
        dtype=product.dtype.computed,
        lanes=lanes,
        accumulate=_accumulates(context, product),
        scratch=context.function.scratch.take,
        has_matrix_tiles=product.uses_matrix_tiles,
        has_byte_products=product.uses_bytes,
    )
    _with_rhs(context, product, number, lambda rhs: emit_dot(builder, lhs, rhs, out, problem))
    if product.dtype.is_low_precision_float:
        _round(context, out, product.dtype, problem.extents[:2])


def _accumulates(context: Context, product: Product) -> bool | Register:
    """Whether there is something to add to: not in the first iteration of some loops."""
    if not product.starts_at:
        return product.accumulates
    builder = context.builder
    places = [(context.index_of(at), context.index_of(begin)) for at, begin in product.starts_at]
    moved = [builder.compare("ne", at, begin) for at, begin in places]
    return reduce(lambda x, y: builder.binary("or", x, y), moved)


def _with_rhs(
    context: Context, product: Product, number: Register | None, emit: Callable[[View], None]
) -> None:
    """Emit the product with its right operand; whether that was packed may show late."""
    operand, builder = product.packed, context.builder
    if operand is None:
        emit(_view(context, product.rhs, number))
        return
    pointer = context.function.packed[operand.source]
    if operand.source.is_certain:
        emit(_packed_view(context, operand, pointer))
        return
    builder.if_else(
        builder.compare("ne", pointer, NULL),
        lambda: emit(_packed_view(context, operand, pointer)),
        lambda: emit(_view(context, product.rhs, number)),
    )


def _view(context: Context, matrix: loop_ir.Matrix, number: Register | None) -> View:
    if isinstance(matrix, loop_ir.StoredMatrix):
        return _view_of_buffer(context, context.function.buffers[matrix.tile], number)
    zero = index(0)
    starts = {axis: zero for axis in matrix.axes if axis is not None}
    if number is not None and matrix.axes[0] is not None:
        starts[matrix.axes[0]] = number
    inside = context.nest(1, {axis: Strided(at, zero) for axis, at in starts.items()})
    memory, position = address_of(inside, matrix.access)
    assert isinstance(position, Strided)
    pointer = context.builder.offset(memory.pointer, position.base, memory.element)
    rows, columns = (_stride(context, matrix, axis) for axis in matrix.axes[-2:])
    return View(pointer, (rows, columns), matrix.access.tensor.type.dtype)


def _view_of_buffer(context: Context, buffer: Buffer, number: Register | None) -> View:
    builder, pointer = context.builder, buffer.pointer
    if number is not None:
        position = builder.multiply(number, buffer.strides[0])
        pointer = builder.offset(pointer, position, buffer.element)
    return View(pointer, (buffer.strides[-2], buffer.strides[-1]), buffer.dtype)


def _stride(context: Context, matrix: loop_ir.LoadedMatrix, axis: int | None) -> Register:
    total, builder = index(0), context.builder
    if axis is None:
        return total
    strides = map(context.extent, matrix.access.tensor.type.strides)
    for step, stride in zip(matrix.steps[axis], strides):
        total = builder.add(total, builder.multiply(index(step), stride))
    return total


def _round(context: Context, out: View, dtype: DType, extents: tuple[Register, ...]) -> None:
    """Round a result of half precision, whole vectors at a time: rows are padded."""
    builder, lanes = context.builder, context.function.kernel.target.vector_lanes
    m, n = extents

    def row(number: Register) -> None:
        position = builder.multiply(number, out.strides[0])
        start = builder.offset(out.pointer, position, "float")

        def part(position: Register, _: tuple[Register, ...]) -> None:
            pointer = builder.offset(start, position, "float")
            vector = builder.load(pointer, LType("float", lanes))
            builder.store(round_to(builder, dtype, vector), pointer)

        builder.loop(index(0), n, index(lanes), part)

    builder.count_up(m, row)
