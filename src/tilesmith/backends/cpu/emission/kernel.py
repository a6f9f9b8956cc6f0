"""Emits a kernel: one function per grid that runs a range of programs, and the entry point.

The entry runs the grids one after the other; the programs of a grid are shared among threads.
Program numbers count the axes of a grid, the first of its order varying fastest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from typing import Any

from tilesmith.backends.cpu.emission import products
from tilesmith.backends.cpu.emission import whole_tiles as lines
from tilesmith.backends.cpu.emission.context import (
    RANGE_PARAMETERS,
    Context,
    begin_function,
    emit_parallel,
    pad,
)
from tilesmith.backends.cpu.emission.elements import emit_store, emit_update, register
from tilesmith.backends.cpu.emission.nests import emit_nest
from tilesmith.backends.cpu.emission.packed_ahead import (
    extend_arguments,
    load_slot,
    pack_operands,
)
from tilesmith.backends.cpu.line_marks import Mark
from tilesmith.backends.cpu.llvm.builder import Builder
from tilesmith.backends.cpu.llvm.instructions import Module
from tilesmith.backends.cpu.llvm.registers import (
    Register,
    index,
    number,
    parameters,
    register_element,
)
from tilesmith.backends.cpu.loop_ir import statements, whole_tiles
from tilesmith.backends.cpu.loop_ir.elements import Tile, Variable
from tilesmith.backends.cpu.loop_ir.statements import Grid, Kernel, LoopAxis
from tilesmith.backends.cpu.math.casts import HALF_CONVERSIONS
from tilesmith.backends.cpu.positions.memory import (
    Buffer,
    count_lanes,
    find_lane_axes,
    find_strides,
)

State = tuple[Register, ...]


def _block(context: Context, block: statements.Block) -> Context:
    for statement in block:
        context = _statement(context, statement)
    return context


def _statement(context: Context, statement: statements.Statement) -> Context:
    after = STATEMENT_EMITTERS[type(statement)](context, statement)
    return context if after is None else after


def _assign(context: Context, item: statements.Assign) -> Context:
    return context.with_scalars({item.variable: register(context.nest(1), item.value)})


def _update(context: Context, item: statements.UpdateElement) -> Context:
    inside = context.nest(1)
    old = emit_update(inside, item, register(inside, item.value))
    return context.with_scalars({item.result: old} if isinstance(item.result, Variable) else {})


def _at(context: Context, axis: LoopAxis, place: Register, end: Register | None = None) -> Context:
    """At a position of a loop: its index has its own type, and a tile is as long as is left."""
    builder, element = context.builder, register_element(axis.index.dtype)
    if place.constant is not None:
        value = number(element, place.constant)
    else:
        value = builder.convert("trunc", place, element)
    context = context.with_scalars({axis.index: value})
    if not axis.block:
        return context
    end, size = end or context.index_of(axis.end), context.block_size(axis.block)
    if axis.is_partial:
        size = builder.minimum(size, builder.subtract(end, place))
    return replace(context, lengths={**context.lengths, axis.block: size})


def _for(context: Context, loop: statements.For) -> Context:
    start = tuple(context.scalars[carried.start] for carried in loop.carried)
    final = _level(context, loop, 0, start)
    return context.with_scalars({c.result: x for c, x in zip(loop.carried, final)})


def _level(context: Context, loop: statements.For, depth: int, state: State) -> State:
    if depth == len(loop.axes):
        inside = context.with_scalars({c.inside: x for c, x in zip(loop.carried, state)})
        after = _block(inside, loop.body)
        return tuple(after.scalars[carried.following] for carried in loop.carried)
    axis = loop.axes[depth]
    begin, end = context.index_of(axis.begin), context.index_of(axis.end)

    def body(position: Register, inner: State) -> State:
        return _level(_at(context, axis, position, end), loop, depth + 1, inner)

    step = context.block_size(axis.block) if axis.step is None else context.index_of(axis.step)
    if _runs_once(begin, end, step):
        # Where it begins is known, and with that how long its only tile is.
        return body(begin, state)
    return context.builder.loop(begin, end, step, body, state)


def _runs_once(begin: Register, end: Register, step: Register) -> bool:
    first, last, by = begin.constant, end.constant, step.constant
    if first is None or last is None or by is None:
        return False
    return first < last <= first + by


def _while(context: Context, loop: statements.While) -> Context:
    def is_open(state: State) -> Register:
        tested = {c.tested: x for c, x in zip(loop.carried, state) if c.tested is not None}
        after = _block(context.with_scalars(tested), loop.condition)
        return after.scalars[loop.is_open]

    def body(state: State) -> list[Register]:
        inside = context.with_scalars({c.inside: x for c, x in zip(loop.carried, state)})
        after = _block(inside, loop.body)
        return [after.scalars[carried.following] for carried in loop.carried]

    start = [context.scalars[carried.start] for carried in loop.carried]
    final = context.builder.repeat(is_open, body, start)
    return context.with_scalars({c.result: x for c, x in zip(loop.carried, final)})


def _if(context: Context, branch: statements.If) -> Context:
    def arm(block: statements.Block, yielded: tuple[Variable, ...]) -> list[Register]:
        after = _block(context, block)
        return [after.scalars[variable] for variable in yielded]

    then, otherwise = branch.yielded
    found = context.builder.if_else(
        context.scalars[branch.condition],
        lambda: arm(branch.then, then),
        lambda: arm(branch.otherwise, otherwise),
    )
    return context.with_scalars(dict(zip(branch.results, found)))


STATEMENT_EMITTERS: dict[type[Any], Callable[[Context, Any], Context | None]] = {
    statements.Assign: _assign,
    whole_tiles.Combine: lambda at, item: at.with_scalars(lines.emit_combination(at, item)),
    statements.For: _for,
    statements.If: _if,
    Mark: lambda at, item: at.builder.emit(f"; mark {item.number}"),
    statements.Nest: lambda at, item: at.with_scalars(emit_nest(at, item)),
    whole_tiles.Print: lines.emit_print,
    whole_tiles.Product: products.emit_product,
    whole_tiles.Scan: lines.emit_scan,
    whole_tiles.SortLines: lines.emit_sort,
    statements.StoreElement: lambda at, item: emit_store(at.nest(1), item),
    statements.UpdateElement: _update,
    statements.While: _while,
}
"""None from those that only write memory: nothing new is known behind them."""


def emit_kernel(kernel: Kernel, name: str) -> str:
    """The module's text; its entry is called ``name``."""
    module = Module(scales_vectors=kernel.target.arch == "avx512")
    for position, grid in enumerate(kernel.grids):
        _emit_grid(module, kernel, grid, f"{name}_programs{position}")
    _emit_entry(module, kernel, name)
    text = module.text()
    needs_halves = kernel.target.arch == "sse" and "half" in text
    return text + HALF_CONVERSIONS if needs_halves else text


def _emit_entry(module: Module, kernel: Kernel, name: str) -> None:
    accepted = parameters(("arguments", "threads"), ("arguments",))
    builder = Builder(module, name, accepted, is_internal=False)
    context = begin_function(builder, kernel)
    more = max((len(grid.packed) for grid in kernel.grids), default=0)
    arguments = extend_arguments(builder, len(kernel.parameters), more)
    number = 0
    for part in kernel.body:
        if isinstance(part, Grid):
            _launch(context, arguments, part, f"{name}_programs{number}")
            number += 1
        else:
            context = _statement(context, part)
    module.add(builder)


def _launch(context: Context, arguments: Register, grid: Grid, body: str) -> None:
    builder = context.builder
    counts = [_count(context, axis) for axis in grid.axes]
    count = reduce(builder.multiply, counts, index(1))
    taken = pack_operands(context, arguments, grid.packed, counts, body)
    options = context.function.kernel.options
    emit_parallel(builder, body, arguments, count, grid.work, options)
    for pointer in taken:
        builder.call_void("free", pointer)


def _emit_grid(module: Module, kernel: Kernel, grid: Grid, name: str) -> None:
    builder = Builder(module, name, RANGE_PARAMETERS)
    context = begin_function(builder, kernel)
    innermost = find_lane_axes(grid.body)
    buffers = {tile: _buffer(context, tile, innermost.get(tile)) for tile in grid.tiles}
    with builder.at_entry():
        slots = enumerate(grid.packed, len(kernel.parameters))
        packed = {source: load_slot(builder, slot) for slot, source in slots}
    indices = tuple(axis.index for axis in grid.axes)
    function = replace(context.function, buffers=buffers, packed=packed, indices=indices)
    context = replace(context, function=function)
    for part in kernel.body[: kernel.body.index(grid)]:
        if not isinstance(part, Grid):
            context = _statement(context, part)
    context = replace(context, function=replace(function, multiples=_multiples(context, grid)))
    counts = [_count(context, axis) for axis in grid.axes]

    def program(number: Register, _: State) -> None:
        _block(_enter(context, grid, number, counts), grid.body)

    builder.loop(builder.parameters[1], builder.parameters[2], index(1), program)
    if kernel.options.streaming_stores:
        # Stores that go past the caches keep no order with other threads' loads by themselves.
        builder.emit("fence seq_cst")
    context.function.scratch.give_back()
    module.add(builder)


def _multiples(context: Context, grid: Grid) -> dict[Variable, int]:
    """Programs that begin at multiples of their block."""
    axes = [axis for axis in grid.axes if context.index_of(axis.begin).constant == 0]
    sizes = {axis.index: _size_of(context, axis).constant for axis in axes}
    return {index: size for index, size in sizes.items() if size is not None}


def _count(context: Context, axis: LoopAxis) -> Register:
    builder = context.builder
    extent = builder.subtract(context.index_of(axis.end), context.index_of(axis.begin))
    if extent.constant is None:
        extent = builder.intrinsic("smax", extent, index(0))
    return builder.ceiling_quotient(extent, _size_of(context, axis))


def _size_of(context: Context, axis: LoopAxis) -> Register:
    return context.block_size(axis.block) if axis.block else index(1)


def _enter(context: Context, grid: Grid, number: Register, counts: list[Register]) -> Context:
    """In a program: its indices and the lengths of its tiles."""
    builder, rest = context.builder, number
    for position in grid.order:
        axis, place = grid.axes[position], rest
        if position != grid.order[-1]:
            count = counts[position]
            place = index(0) if count.constant == 1 else builder.binary("srem", rest, count)
            rest = rest if count.constant == 1 else builder.binary("sdiv", rest, count)
        size = _size_of(context, axis)
        begin = builder.add(context.index_of(axis.begin), builder.multiply(place, size))
        context = _at(context, axis, begin)
    return context


def _buffer(context: Context, tile: Tile, innermost: int | None) -> Buffer:
    """Memory for a tile; ``innermost`` is None where a product or the like goes over rows."""
    builder, scratch = context.builder, context.function.scratch
    lanes = context.function.kernel.target.vector_lanes
    with builder.at_entry():
        lengths = [context.length(dim) for dim in tile.shape]
        if tile.is_padded:
            lengths = pad(builder, lengths, lanes, tile.held_as)
        elif innermost is not None:
            lanes = count_lanes(lengths[innermost].constant, lanes)
            raised = builder.add(lengths[innermost], index(lanes - 1))
            lengths[innermost] = builder.round_down(raised, lanes)
        strides, count = find_strides(builder, lengths, innermost)
        size = builder.multiply(count, index(tile.held_as.itemsize))
    known = size.constant
    pointer = scratch.take_runtime(size) if known is None else scratch.take(known)
    return Buffer(pointer, strides, tile.held_as, innermost, lanes)
