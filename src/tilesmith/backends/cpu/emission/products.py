"""Emits matrix products: of operands where they lie, or as they were packed before."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

from tilesmith.backends.cpu.dots.plans import BYTES, PAIRS
from tilesmith.backends.cpu.dots.product import emit_dot
from tilesmith.backends.cpu.dots.shapes import DotProblem, View
from tilesmith.backends.cpu.emission.context import (
    NULL,
    Context,
)
from tilesmith.backends.cpu.emission.elements import address_of
from tilesmith.backends.cpu.emission.packed_ahead import packed_view
from tilesmith.backends.cpu.llvm.lanes import Strided
from tilesmith.backends.cpu.llvm.registers import LType, Register, index
from tilesmith.backends.cpu.loop_ir import whole_tiles as loop_ir
from tilesmith.backends.cpu.loop_ir.whole_tiles import (
    Product,
)
from tilesmith.backends.cpu.math.casts import round_to
from tilesmith.backends.cpu.positions.memory import Buffer
from tilesmith.dtypes import DType


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
        has_byte_products=product.joined_steps == BYTES,
        has_pair_products=product.joined_steps == PAIRS,
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
        emit(packed_view(context, operand, pointer))
        return
    builder.if_else(
        builder.compare("ne", pointer, NULL),
        lambda: emit(packed_view(context, operand, pointer)),
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
