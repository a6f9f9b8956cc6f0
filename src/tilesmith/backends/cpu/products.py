"""Emits matrix products: finds where the operands lie and hands over to the packed product."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce

from tilesmith.backends.cpu.buffers import Buffer, compute_dtype, multiplies_tiles
from tilesmith.backends.cpu.casts import round_to
from tilesmith.backends.cpu.coordinates import Axis, own_coords
from tilesmith.backends.cpu.dots.product import emit_dot
from tilesmith.backends.cpu.dots.views import DotProblem, View
from tilesmith.backends.cpu.elements import ElementEmitter
from tilesmith.backends.cpu.lanes import Strided
from tilesmith.backends.cpu.matrix_views import LoadedMatrix, find_matrix, find_stored
from tilesmith.backends.cpu.nests import DotStep
from tilesmith.backends.cpu.packed_operands import PackedOperand
from tilesmith.backends.cpu.prologue import NULL, packed_view
from tilesmith.backends.cpu.registers import LType, Register, index
from tilesmith.backends.cpu.scratch import Scratch
from tilesmith.dtypes import DType
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.types import Dim
from tilesmith.ir.values import Value
from tilesmith.schedule.schedule import Schedule


class ProductEmitter:
    """Emits the products of one function."""

    def __init__(self, elements: ElementEmitter, scratch: Scratch, schedule: Schedule) -> None:
        self._e = elements
        self._b = elements.b
        self._scratch = scratch
        self._schedule = schedule
        self.packed: Mapping[Dot, tuple[PackedOperand, Register]] = {}
        """Right operands that were packed before, and where they are."""

    def emit(self, step: DotStep) -> None:
        """A product, one matrix after the other where there is a batch."""
        op = step.op
        if op.result.tile.rank == 2:
            self._emit_one(step, None)
            return
        batch = self._e.length(op.result.tile.shape[0])
        self._b.count_up(batch, lambda number: self._emit_one(step, number))

    def _emit_one(self, step: DotStep, number: Register | None) -> None:
        op = step.op
        out = self._of_buffer(self._e.buffers[op.result], number)
        (m, k), n = op.lhs.tile.shape[-2:], op.rhs.tile.shape[-1]
        dtype = compute_dtype(op.result.tile.dtype)
        lhs = self._view(op.lhs, number)
        problem = DotProblem(
            extents=(self._e.length(m), self._e.length(n), self._e.length(k)),
            bounds=(self._bound(m), self._bound(n), self._bound(k)),
            dtype=dtype,
            lanes=self._schedule.target.vector_lanes,
            accumulate=self._accumulates(step),
            scratch=self._scratch.take,
            has_matrix_tiles=multiplies_tiles(op, self._schedule.target),
        )
        self._with_rhs(op, number, lambda rhs: emit_dot(self._b, lhs, rhs, out, problem))
        if op.result.tile.dtype.is_low_precision_float:
            self._round(out, op.result.tile.dtype, problem.extents[0], problem.extents[1])

    def _accumulates(self, step: DotStep) -> bool | Register:
        """Whether there is something to add to: not in the first iteration of some loops."""
        loop = step.starts_in
        if loop is None:
            return step.accumulates
        begins = [self._e.scalars[begin] for begin in loop.begins]
        indices = [self._e.scalars[arg] for arg in loop.body.args[: loop.rank]]
        places = [tuple(map(self._b.index_of, pair)) for pair in zip(indices, begins)]
        moved = [self._b.compare("ne", at, begin) for at, begin in places]
        return reduce(lambda x, y: self._b.binary("or", x, y), moved)

    def _with_rhs(self, op: Dot, number: Register | None, emit: Callable[[View], None]) -> None:
        """Emit the product with its right operand; whether that was packed may show late."""
        operand, pointer = self.packed.get(op, (None, NULL))
        if operand is None:
            emit(self._view(op.rhs, number))
        elif operand.source.is_certain:
            emit(packed_view(self._e, operand, pointer))
        else:
            self._b.if_else(
                self._b.compare("ne", pointer, NULL),
                lambda: emit(packed_view(self._e, operand, pointer)),
                lambda: emit(self._view(op.rhs, number)),
            )

    def _bound(self, dim: Dim) -> int | None:
        is_known = all(
            isinstance(factor, int) or factor in self._e.block_sizes for factor in dim.factors
        )
        return self._schedule.physical(dim) if is_known else None

    def _view(self, value: Value, number: Register | None) -> View:
        stored = find_stored(value, self._e.tiles)
        if stored is not None:
            return self._of_buffer(self._e.buffers[stored], number)
        matrix = find_matrix(value, self._e.tiles)
        assert matrix is not None, f"{value.name} was to be kept"
        return self._of_load(value, matrix, number)

    def _of_buffer(self, buffer: Buffer, number: Register | None) -> View:
        pointer = buffer.pointer
        if number is not None:
            position = self._b.multiply(number, buffer.strides[0])
            pointer = self._b.offset(pointer, position, buffer.element)
        return View(pointer, (buffer.strides[-2], buffer.strides[-1]), buffer.dtype)

    def _of_load(self, value: Value, matrix: LoadedMatrix, number: Register | None) -> View:
        shape = value.tile.shape
        coords = own_coords(shape)
        axes = [c.number if isinstance(c, Axis) else None for c in coords]
        with self._e.nest((), 1):
            zero = index(0)
            starts = {axis: zero for axis in axes if axis is not None}
            if number is not None and axes[0] is not None:
                starts[axes[0]] = number
            self._e.loops = {axis: Strided(at, zero) for axis, at in starts.items()}
            memory, position = self._e.address(matrix.load, matrix.coords)
        assert isinstance(position, Strided)
        pointer = self._b.offset(memory.pointer, position.base, memory.element)
        rows, columns = (self._stride(matrix, axis) for axis in axes[-2:])
        return View(pointer, (rows, columns), matrix.load.tensor.tensor.dtype)

    def _stride(self, matrix: LoadedMatrix, axis: int | None) -> Register:
        total = index(0)
        if axis is None:
            return total
        strides = map(self._e.extent, matrix.load.tensor.tensor.strides)
        for step, stride in zip(matrix.steps[axis], strides):
            total = self._b.add(total, self._b.multiply(index(step), stride))
        return total

    def _round(self, out: View, dtype: DType, m: Register, n: Register) -> None:
        """Round a result of half precision, whole vectors at a time: rows are padded."""
        b, lanes = self._b, self._schedule.target.vector_lanes

        def row(number: Register) -> None:
            start = b.offset(out.pointer, b.multiply(number, out.strides[0]), "float")

            def part(position: Register, _: tuple[Register, ...]) -> None:
                pointer = b.offset(start, position, "float")
                b.store(round_to(b, dtype, b.load(pointer, LType("float", lanes))), pointer)

            b.loop(index(0), n, index(lanes), part)

        b.count_up(m, row)
