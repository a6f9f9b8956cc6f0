"""Emits a kernel: one function per grid that runs a range of programs, and the entry point.

The entry runs the grids one after the other; the programs of a grid are shared among threads.
Program numbers count the axes of a grid, the first of its order varying fastest.
"""

from __future__ import annotations

from tilesmith.analysis.partial_tiles import find_partial_axes
from tilesmith.backends.cpu.buffers import Buffer, held_as, is_product, padded_lengths
from tilesmith.backends.cpu.builder import Builder
from tilesmith.backends.cpu.casts import cast
from tilesmith.backends.cpu.elements import ElementEmitter
from tilesmith.backends.cpu.half_conversions import HALF_CONVERSIONS
from tilesmith.backends.cpu.instructions import Module
from tilesmith.backends.cpu.keeps import plan_grid
from tilesmith.backends.cpu.nest_emitter import NestEmitter
from tilesmith.backends.cpu.nests import PlannedGrid
from tilesmith.backends.cpu.packed_operands import PackedOperand
from tilesmith.backends.cpu.prefetching import mark_prefetches
from tilesmith.backends.cpu.prepacking import find_packed_operands
from tilesmith.backends.cpu.products import ProductEmitter
from tilesmith.backends.cpu.prologue import Prologue, extend_arguments, load_slot
from tilesmith.backends.cpu.registers import INDEX, POINTER, LType, Register, index
from tilesmith.backends.cpu.scratch import Scratch, size_in_bytes
from tilesmith.backends.cpu.steps import PartialAxes, StepEmitter
from tilesmith.backends.cpu.threads import RANGE_PARAMETERS, Programs, emit_parallel
from tilesmith.backends.cpu.virtual_tiles import VirtualTiles
from tilesmith.backends.cpu.work import estimate_work
from tilesmith.dtypes import F64, I64
from tilesmith.ir.function import Function
from tilesmith.ir.ops.control_flow import Grid
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.traversal import definitions
from tilesmith.ir.types import TensorType
from tilesmith.ir.values import Value
from tilesmith.schedule.schedule import Schedule

_ARGUMENTS = ("arguments", LType(POINTER))


def plan_function(function: Function, schedule: Schedule) -> list[PlannedGrid]:
    """The plans of all grids."""
    ops = [op for op in function.body.ops if isinstance(op, Grid)]
    grids: list[PlannedGrid] = []
    for op in ops:
        program, tiles = plan_grid(function, op.body, schedule)
        packed = find_packed_operands(function, op, tiles, schedule)
        grids.append(PlannedGrid(op, program, tiles, packed))
    for grid in grids:
        mark_prefetches(grid, schedule)
    return grids


class KernelEmitter:
    """Emits the module of one function."""

    def __init__(self, function: Function, schedule: Schedule, grids: list[PlannedGrid]) -> None:
        self._function = function
        self._schedule = schedule
        self._grids = grids
        self._module = Module()
        self._blocks = {b.name: schedule.symbols[b.name] for b in function.blocks}
        self._partial: PartialAxes = find_partial_axes(function, schedule.symbols)

    def emit(self, name: str) -> str:
        """The module's text; its entry is called ``name``."""
        for number, grid in enumerate(self._grids):
            self._emit_grid(grid, f"{name}_programs{number}")
        b = Builder(self._module, name, (_ARGUMENTS, ("threads", LType(INDEX))), is_internal=False)
        steps = self._begin_outside(b)
        prologue = self._prologue(steps.elements)
        number = 0
        for op in self._function.body.ops:
            if not isinstance(op, Grid):
                steps.scalar(op)
                continue
            body = f"{name}_programs{number}"
            self._launch(prologue, self._grids[number], steps.elements, body)
            number += 1
        self._module.add(b)
        text = self._module.text()
        needs_halves = self._schedule.target.arch == "sse" and "half" in text
        return text + HALF_CONVERSIONS if needs_halves else text

    def _prologue(self, elements: ElementEmitter) -> Prologue:
        first = len(self._function.parameters)
        more = max((len(grid.packed_tensors) for grid in self._grids), default=0)
        arguments = extend_arguments(elements.b, first, more)
        return Prologue(elements, arguments, first, lambda b: self._begin_outside(b).elements)

    def _launch(
        self, prologue: Prologue, grid: PlannedGrid, elements: ElementEmitter, body: str
    ) -> None:
        b, count = elements.b, index(1)
        counts = self._counts(grid.op, elements)
        for part in counts:
            count = b.multiply(count, part)
        work = estimate_work(grid.program, self._schedule)
        prologue.pack(grid.packed_tensors, counts, body, self._schedule.cpu)
        programs = Programs(prologue.arguments, count, work)
        emit_parallel(b, body, programs, self._schedule.cpu)
        prologue.give_back()

    def _begin_outside(self, b: Builder) -> StepEmitter:
        """The beginning of a function that runs no programs."""
        return self._begin(b, VirtualTiles(definitions(self._function.body)), Scratch(b))

    def _begin(self, b: Builder, tiles: VirtualTiles, scratch: Scratch) -> StepEmitter:
        """Everything a function starts with: its parameters, by value and by name."""
        elements = ElementEmitter(b, tiles, self._blocks)
        with b.at_entry():
            for number, parameter in enumerate(self._function.parameters):
                register = _load_parameter(b, number, parameter.value)
                elements.scalars[parameter.value] = register
                kind = parameter.value.type
                if not isinstance(kind, TensorType) and kind.dtype.is_integer:
                    elements.named[parameter.value.name] = b.index_of(register)
        nests = NestEmitter(elements, self._schedule.target.vector_lanes, self._schedule.cpu)
        products = ProductEmitter(elements, scratch, self._schedule)
        return StepEmitter(elements, nests, products, self._partial)

    def _emit_grid(self, grid: PlannedGrid, name: str) -> None:
        b = Builder(self._module, name, RANGE_PARAMETERS)
        scratch = Scratch(b)
        steps = self._begin(b, grid.tiles, scratch)
        elements = steps.elements
        elements.spilled = grid.program.spilled
        elements.program = grid.op.body.args
        self._allocate(grid, elements, scratch)
        steps.products.packed = self._find_packed(b, grid)
        ops = self._function.body.ops
        for op in ops[: ops.index(grid.op)]:
            if not isinstance(op, Grid):
                steps.scalar(op)
        counts = self._counts(grid.op, elements)

        def program(number: Register, _: tuple[Register, ...]) -> None:
            self._place(grid.op, number, counts, steps)
            steps.run(grid.program.steps)

        b.loop(b.parameters[1], b.parameters[2], index(1), program)
        if self._schedule.cpu.streaming_stores:
            # Stores that go past the caches keep no order with other threads' loads by themselves.
            b.emit("fence seq_cst")
        scratch.give_back()
        self._module.add(b)

    def _find_packed(
        self, b: Builder, grid: PlannedGrid
    ) -> dict[Dot, tuple[PackedOperand, Register]]:
        """Where the entry has put operands."""
        first = len(self._function.parameters)
        with b.at_entry():
            pointers = {
                source: load_slot(b, first + position)
                for position, source in enumerate(grid.packed_tensors)
            }
        return {dot: (operand, pointers[operand.source]) for dot, operand in grid.packed.items()}

    def _counts(self, op: Grid, elements: ElementEmitter) -> list[Register]:
        """The number of programs along each axis."""
        b = elements.b
        found: list[Register] = []
        for begin, end, block in zip(op.begins, op.ends, op.blocks):
            bounds = (b.index_of(elements.scalars[value]) for value in (end, begin))
            extent = b.subtract(*bounds)
            if extent.constant is None:
                extent = b.intrinsic("smax", extent, index(0))
            size = elements.block_size(block) if block else index(1)
            found.append(b.ceiling_quotient(extent, size))
        return found

    def _place(
        self, op: Grid, number: Register, counts: list[Register], steps: StepEmitter
    ) -> None:
        """Set the indices and tile lengths of one program."""
        elements, b = steps.elements, steps.elements.b
        options = self._schedule.grids.get(op.slot)
        order = options.order if options is not None else tuple(reversed(range(len(op.blocks))))
        rest = number
        for axis in order:
            position = rest
            if axis != order[-1]:
                position = _remainder(b, rest, counts[axis])
                rest = _quotient(b, rest, counts[axis])
            block = op.blocks[axis]
            size = elements.block_size(block) if block else index(1)
            start = b.index_of(elements.scalars[op.begins[axis]])
            begin = b.add(start, b.multiply(position, size))
            steps.set_index(op.body.args[axis], begin)
            if block:
                end = b.index_of(elements.scalars[op.ends[axis]])
                partial = self._partial[op][axis]
                elements.lengths[block] = steps.length_of_tile(block, begin, end, partial)

    def _allocate(self, grid: PlannedGrid, elements: ElementEmitter, scratch: Scratch) -> None:
        program = grid.program
        for value in program.buffers:
            if value not in program.aliases and value not in program.spilled:
                elements.buffers[value] = self._buffer(value, grid, elements, scratch)
        for value in program.aliases:
            elements.buffers[value] = elements.buffers[program.buffer_of(value)]

    def _buffer(
        self, value: Value, grid: PlannedGrid, elements: ElementEmitter, scratch: Scratch
    ) -> Buffer:
        b, dtype = elements.b, held_as(value, grid.program, grid.tiles, self._schedule.target)
        with b.at_entry():
            lengths = [elements.length(dim) for dim in value.tile.shape]
            if is_product(value, grid.program, grid.tiles):
                lanes = self._schedule.target.vector_lanes
                lengths = padded_lengths(b, lengths, lanes, dtype)
            strides = [index(1)]
            for length in reversed(lengths[1:]):
                strides.insert(0, b.multiply(strides[0], length))
            size = size_in_bytes(b, lengths, dtype.itemsize)
        static = size.constant
        pointer = scratch.take_runtime(size) if static is None else scratch.take(static)
        return Buffer(pointer, tuple(strides), dtype)


def _remainder(b: Builder, x: Register, y: Register) -> Register:
    return index(0) if y.constant == 1 else b.binary("srem", x, y)


def _quotient(b: Builder, x: Register, y: Register) -> Register:
    return x if y.constant == 1 else b.binary("sdiv", x, y)


def _load_parameter(b: Builder, number: int, value: Value) -> Register:
    """A kernel parameter from its 8-byte slot."""
    slot = b.offset(b.parameters[0], index(number), INDEX)
    if isinstance(value.type, TensorType):
        return b.load(slot, LType(POINTER))
    dtype = value.tile.dtype
    source = F64 if dtype.is_float else I64
    raw = b.load(slot, LType("double" if dtype.is_float else INDEX))
    return cast(b, source, dtype, raw)
