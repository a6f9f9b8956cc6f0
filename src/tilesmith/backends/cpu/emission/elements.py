"""Computes elements, and what is done with them: stores, kept tiles, atomics, results.

What was computed once in a step of a loop, or outside it, is used again. An atomic update is an
instruction where there is one, else compare and swap.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

from tilesmith.backends.cpu.emission.context import Context
from tilesmith.backends.cpu.emission.shared_lanes.repeat import repeat_lanes
from tilesmith.backends.cpu.llvm import lanes
from tilesmith.backends.cpu.llvm.builder import Builder
from tilesmith.backends.cpu.llvm.lanes import Elements, Lane, Lanes, Place, Strided
from tilesmith.backends.cpu.llvm.registers import (
    INDEX,
    POINTER,
    LType,
    Register,
    index,
    memory_element,
    number,
    register_element,
)
from tilesmith.backends.cpu.loop_ir import elements as ir
from tilesmith.backends.cpu.loop_ir.statements import (
    KeepElement,
    ReduceElement,
    StoreElement,
    UpdateElement,
    Write,
)
from tilesmith.backends.cpu.math.casts import bitcast, cast, round_to, to_memory, to_register
from tilesmith.backends.cpu.math.scalar_functions import apply
from tilesmith.backends.cpu.positions.confined_writes import (
    confined_to,
    is_inside,
    write_inside,
)
from tilesmith.backends.cpu.positions.memory import read
from tilesmith.dtypes import F32, F64, I64, DType, ElementKind


def evaluate(context: Context, element: ir.Element) -> Lane:
    """The lanes of an element."""
    found = context.known.get(element)
    if found is None and element in context.shared:
        found = context.known[element] = repeat_lanes(context, element, evaluate)
    elif found is None:
        found = context.known[element] = ELEMENT_EMITTERS[type(element)](context, element)
    return found


def register(context: Context, element: ir.Element) -> Register:
    """An element in register form: a scalar if it is the same in all lanes."""
    lane = evaluate(context, element)
    return lanes.register_of(context.builder, lane, element.dtype, context.lanes.width)


def position_of(context: Context, position: ir.Position) -> Lane:
    """A position along an axis, as 64-bit lanes."""
    if isinstance(position, ir.LoopIndex):
        return context.loops[position.axis]
    if isinstance(position, ir.Indirect):
        return _indirect(context, position.element)
    if isinstance(position, ir.Digit):
        return _digit(context, position)
    return Strided(index(position.position), index(0))


def _indirect(context: Context, element: ir.Element) -> Lane:
    builder, lane = context.builder, evaluate(context, element)
    if isinstance(lane, Register) and not lane.type.is_vector:
        return Strided(builder.index_of(lane), index(0))
    if isinstance(lane, Strided) and lane.bits == 64:
        return lane
    whole = lanes.register_of(builder, lane, element.dtype, context.lanes.width)
    return cast(builder, element.dtype, I64, whole)


def _digit(context: Context, digit: ir.Digit) -> Lane:
    builder = context.builder
    parts: list[tuple[Lane, Register]] = []
    stride = index(1)
    for dim, part in reversed(list(zip(digit.source, digit.positions))):
        parts.append((position_of(context, part), stride))
        stride = builder.multiply(stride, context.length(dim))
    linear = lanes.offset_of(builder, parts, context.lanes.width)
    wide = [axis for axis, dim in enumerate(digit.shape) if not dim.is_one]
    lengths = (context.length(digit.shape[axis]) for axis in wide if axis > digit.axis)
    below = reduce(builder.multiply, lengths, index(1))
    if below.constant != 1:
        linear = _divide(context, "udiv", linear, below)
    if digit.axis == wide[0]:
        return linear
    return _divide(context, "urem", linear, context.length(digit.shape[digit.axis]))


def _divide(context: Context, op: str, x: Lane, divisor: Register) -> Lane:
    builder, width = context.builder, context.lanes.width
    if isinstance(x, Strided) and x.step.constant == 0:
        return Strided(builder.binary(op, x.base, divisor), index(0))
    whole = lanes.register_of(builder, x, I64, width)
    return builder.binary(op, whole, builder.splat(divisor, width))


def tile_position(context: Context, place: ir.TilePlace) -> Place:
    """Where an element lies in its buffer."""
    strides = context.function.buffers[place.tile].strides
    parts = [(position_of(context, p), stride) for p, stride in zip(place.positions, strides)]
    return lanes.place_of(context.builder, parts, context.lanes.width)


def write_tile(
    context: Context, place: ir.TilePlace, value: Register, position: Place | None = None
) -> None:
    """Write an element of a tile, whose position may be known already."""
    buffer = context.function.buffers[place.tile]
    stored = to_memory(context.builder, buffer.dtype, value)
    if position is None:
        position = tile_position(context, place)
    among = buffer.lanes_in(place, position, context.lanes, context.loops, is_written=True)
    lanes.write(context.builder, buffer.elements, position, stored, among)


def address_of(context: Context, access: ir.Access) -> tuple[Elements, Place]:
    """The tensor's memory and the position of the accessed element in it."""
    builder, tensor = context.builder, access.tensor.type
    strides = map(context.extent, tensor.strides)
    parts = [(evaluate(context, part), by) for part, by in zip(access.indices, strides)]
    if access.base is None:
        pointer = context.function.tensors[access.tensor]
    else:
        pointer = builder.convert("inttoptr", register(context, access.base), POINTER)
    memory = Elements(pointer, memory_element(tensor.dtype))
    return memory, lanes.place_of(builder, parts, context.lanes.width)


def mask_of(context: Context, access: ir.Access) -> Register | None:
    """The mask of an access as written by the user."""
    return None if access.mask is None else register(context, access.mask)


def _read(context: Context, element: ir.Read) -> Lane:
    access = element.access
    memory, position = address_of(context, access)
    if element.ahead and context.lanes.tail is None and isinstance(position, Strided):
        # Into the second cache comes what the next program will read here.
        builder, ahead = context.builder, position.base
        for distance, stride in zip(element.ahead, access.tensor.type.strides):
            ahead = builder.add(ahead, builder.multiply(index(distance), context.extent(stride)))
        builder.prefetch(builder.offset(memory.pointer, ahead, memory.element))
    mask = mask_of(context, access)
    # Positions that come from memory as they are seldom follow one another.
    take = lanes.read if any(map(_is_loaded, access.indices)) else read
    found = take(context.builder, memory, position, context.lanes, mask)
    return to_register(context.builder, access.tensor.type.dtype, found)


def _is_loaded(element: ir.Element) -> bool:
    while isinstance(element, (ir.View, ir.Convert)):
        element = element.x
    return isinstance(element, ir.Read)


def _read_tile(context: Context, element: ir.ReadTile) -> Lane:
    place, among = element.place, context.lanes
    if isinstance(place, ir.Access):
        (memory, position), dtype = address_of(context, place), place.tensor.type.dtype
    else:
        buffer, position = context.function.buffers[place.tile], tile_position(context, place)
        memory, dtype = buffer.elements, buffer.dtype
        among = buffer.lanes_in(place, position, context.lanes, context.loops)
    found = lanes.read(context.builder, memory, position, among)
    return to_register(context.builder, dtype, found)


def _read_variable(context: Context, element: ir.ReadVariable) -> Lane:
    variable = element.variable
    if variable in context.scalars:
        return context.scalars[variable]
    return evaluate(context, context.steps[variable])


def _apply(context: Context, element: ir.Apply) -> Lane:
    builder, width = context.builder, context.lanes.width
    args = [evaluate(context, arg) for arg in element.operands]
    if element.dtype.is_integer:
        found = lanes.combine_strided(builder, element.function, args, element.dtype.bits)
        if found is not None:
            return found
    pairs = zip(args, element.operands)
    parts = [lanes.register_of(builder, lane, arg.dtype, width) for lane, arg in pairs]
    if any(part.type.is_vector for part in parts):
        parts = [builder.splat(part, width) for part in parts]
    return apply(builder, element.function, element.operands[-1].dtype, parts)


def _convert(context: Context, element: ir.Convert) -> Lane:
    builder, width = context.builder, context.lanes.width
    lane = evaluate(context, element.x)
    source, target = element.x.dtype, element.dtype
    if isinstance(lane, Strided) and min(source.bits, target.bits) >= 32 and target.is_integer:
        if target.bits < source.bits:
            return lanes.register_of(builder, lane, target, width)
        if target.bits == source.bits or source.kind is ElementKind.SIGNED:
            return lane
    convert = bitcast if element.is_bitcast else cast
    return convert(builder, source, target, lanes.register_of(builder, lane, source, width))


def constant(context: Context, value: float, dtype: DType) -> Register:
    """A number as registers hold values of a type."""
    x = number(register_element(dtype), value)
    is_low = dtype.is_float and dtype not in (F32, F64)
    return round_to(context.builder, dtype, x) if is_low and value else x


def _position(context: Context, element: ir.PositionOf) -> Lane:
    builder, lane = context.builder, position_of(context, element.position)
    if element.operands:
        by = builder.index_of(register(context, element.x))
        if isinstance(lane, Strided):
            return Strided(builder.add(lane.base, by), lane.step)
        lane = builder.binary("add", lane, builder.splat(by, lane.lanes))
    # Positions that are no longer evenly spaced are numbers of their own type.
    return cast(builder, I64, element.dtype, lane) if isinstance(lane, Register) else lane


def _joined(context: Context, element: ir.Joined) -> Lane:
    if len(element.operands) == 1:
        return evaluate(context, element.operands[0])
    builder, width = context.builder, context.lanes.width
    side = lanes.register_of(builder, position_of(context, element.position), I64, width)
    lhs, rhs = (register(context, side) for side in element.operands)
    is_first = builder.compare("eq", side, number(INDEX, 0, side.lanes))
    if side.type.is_vector or lhs.type.is_vector or rhs.type.is_vector:
        is_first, lhs, rhs = (builder.splat(x, width) for x in (is_first, lhs, rhs))
    return builder.select(is_first, lhs, rhs)


ELEMENT_EMITTERS: dict[type[ir.Element], Callable[[Context, Any], Lane]] = {
    ir.Apply: _apply,
    ir.BlockLength: lambda at, item: Strided(at.block_size(item.block), index(0)),
    ir.Convert: _convert,
    ir.Gathered: lambda at, item: evaluate(at, item.x),
    ir.Joined: _joined,
    ir.Number: lambda at, item: constant(at, item.value, item.dtype),
    ir.PositionOf: _position,
    ir.Read: _read,
    ir.ReadTile: _read_tile,
    ir.ReadVariable: _read_variable,
    ir.View: lambda at, item: evaluate(at, item.x),
}

Results = Mapping[ir.Variable, Register]
"""Scalars that a nest reduces to."""


def emit_writes(
    context: Context, writes: Sequence[Write], values: list[Register], *, is_streaming: bool = False
) -> None:
    """One step's elements, in order. Whole vectors that stream must be aligned."""
    for item, value in zip(writes, values):
        if isinstance(item, KeepElement):
            _keep(context, item, value, is_streaming)
        elif isinstance(item, StoreElement):
            _store(context, item.access, value, is_streaming)
        elif isinstance(item, UpdateElement):
            old = emit_update(context, item, value)
            if isinstance(item.result, ir.TilePlace):
                write_tile(context, item.result, old)


def emit_result(context: Context, item: Write, value: Register) -> Results:
    """Write the result of a reduction; a scalar one is handed on."""
    assert isinstance(item, ReduceElement)
    if isinstance(item.target, ir.Variable):
        return {item.target: value}
    # A result of all lanes is one element, whatever the nest has.
    where = context if value.type.is_vector else replace(context, lanes=Lanes(1))
    write_tile(where, item.target, value)
    return {}


def _keep(context: Context, item: KeepElement, value: Register, is_streaming: bool) -> None:
    if isinstance(item.target, ir.TilePlace):
        write_tile(context, item.target, value)
    elif not item.is_stored_too:
        _store(context, item.target, value, is_streaming)


def _store(context: Context, access: ir.Access, value: Register, is_streaming: bool) -> None:
    builder, (memory, position) = context.builder, address_of(context, access)
    stored, among = to_memory(builder, access.tensor.type.dtype, value), context.lanes
    mask, count = mask_of(context, access), confined_to(access)
    if count is not None:
        write_inside(builder, (memory, position), count, stored, among, mask)
    elif is_streaming and among.tail is None and mask is None:
        assert isinstance(position, Strided)
        pointer = builder.offset(memory.pointer, position.base, memory.element)
        builder.store(builder.splat(stored, among.width), pointer, nontemporal=True)
    else:
        lanes.write(builder, memory, position, stored, among, mask)


def emit_store(context: Context, item: StoreElement) -> None:
    """A store of a scalar."""
    _store(context, item.access, register(context, item.value), is_streaming=False)


def emit_update(context: Context, item: UpdateElement, value: Register) -> Register:
    """One atomic update; gives what was there, 0 where the mask does not hold."""
    builder = context.builder
    memory, position = address_of(context, item.access)
    condition, count = mask_of(context, item.access), confined_to(item.access)
    if count is not None:
        inside = is_inside(builder, count, position, 1)
        condition = inside if condition is None else builder.binary("and", condition, inside)
    assert isinstance(position, Strided)
    pointer = builder.offset(memory.pointer, position.base, memory.element)
    expected = None if item.expected is None else register(context, item.expected)
    if condition is None:
        return _emit_atomic(builder, item, pointer, value, expected)
    return builder.if_else(
        condition,
        lambda: [_emit_atomic(builder, item, pointer, value, expected)],
        lambda: [number(value.type.element, 0)],
    )[0]


_FAILURE_ORDERS = {"release": "monotonic", "acq_rel": "acquire"}
_FUNCTIONS = {"max": "maximum", "min": "minimum"}


def _order(item: UpdateElement) -> str:
    return "monotonic" if item.order == "relaxed" else item.order


def _emit_atomic(
    builder: Builder, item: UpdateElement, pointer: Register, x: Register, expected: Register | None
) -> Register:
    """Update the element at ``pointer``; gives what was there, in register form."""
    dtype = item.access.tensor.type.dtype
    if expected is not None:
        old, new = (to_memory(builder, dtype, value) for value in (expected, x))
        pair = _exchange(builder, item, pointer, old, new)
        return to_register(builder, dtype, builder.value(old.type, f"extractvalue {pair}, 0"))
    if item.kind == "xchg" or dtype.is_integer:
        value = to_memory(builder, dtype, x)
        bits = builder.convert("bitcast", value, f"i{dtype.bits}")
        is_unsigned = dtype.kind is ElementKind.UNSIGNED and item.kind in ("max", "min")
        kind = f"u{item.kind}" if is_unsigned else item.kind
        old = builder.value(bits.type, f"atomicrmw {kind} {pointer}, {bits} {_order(item)}")
        return to_register(builder, dtype, builder.convert("bitcast", old, memory_element(dtype)))
    return _compare_and_swap(builder, item, pointer, x)


def _exchange(
    builder: Builder, item: UpdateElement, pointer: Register, old: Register, new: Register
) -> Register:
    """What was there, and whether it was ``old`` and is ``new`` now."""
    order = _order(item)
    pair = builder.new(LType("{ " + f"{old.type}, i1" + " }"))
    failed = _FAILURE_ORDERS.get(order, order)
    builder.emit(f"{pair.text} = cmpxchg {pointer}, {old}, {new} {order} {failed}")
    return pair


def _compare_and_swap(
    builder: Builder, item: UpdateElement, pointer: Register, x: Register
) -> Register:
    dtype = item.access.tensor.type.dtype
    bits, element = LType(f"i{dtype.bits}"), memory_element(dtype)
    first = builder.value(bits, f"load atomic {bits}, {pointer} monotonic, align {dtype.bits // 8}")

    def attempt(state: tuple[Register, ...]) -> list[Register]:
        old = to_register(builder, dtype, builder.convert("bitcast", state[0], element))
        new = to_memory(
            builder, dtype, apply(builder, _FUNCTIONS.get(item.kind, item.kind), dtype, [old, x])
        )
        swapped = builder.convert("bitcast", new, bits.element)
        pair = _exchange(builder, item, pointer, state[0], swapped)
        seen = builder.value(bits, f"extractvalue {pair}, 0")
        return [seen, builder.value(LType("i1"), f"extractvalue {pair}, 1")]

    def is_open(state: tuple[Register, ...]) -> Register:
        return builder.binary("xor", state[1], number("i1", 1))

    found = builder.repeat(is_open, attempt, (first, number("i1", 0)))
    return to_register(builder, dtype, builder.convert("bitcast", found[0], element))
