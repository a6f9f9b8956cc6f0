"""What a nest does with the elements it computes: stores, kept tiles, atomics, results.

An atomic update is an instruction where there is one, else compare and swap.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tilesmith.backends.cpu.emission.context import Context
from tilesmith.backends.cpu.emission.elements import address_of, mask_of, register, write_tile
from tilesmith.backends.cpu.llvm.builder import Builder
from tilesmith.backends.cpu.llvm.lanes import Lanes, Strided, write
from tilesmith.backends.cpu.llvm.registers import LType, Register, memory_element, number
from tilesmith.backends.cpu.loop_ir import nests as loop_ir
from tilesmith.backends.cpu.loop_ir.elements import Access, TilePlace, Variable
from tilesmith.backends.cpu.loop_ir.nests import ReduceElement, UpdateElement
from tilesmith.backends.cpu.math.casts import to_memory, to_register
from tilesmith.backends.cpu.math.scalar_functions import apply
from tilesmith.dtypes import ElementKind

Results = Mapping[Variable, Register]
"""Scalars that a nest reduces to."""


def emit_writes(
    context: Context,
    writes: Sequence[loop_ir.Write],
    values: list[Register],
    *,
    is_streaming: bool = False,
) -> None:
    """One step's elements, in order. Whole vectors that stream must be aligned."""
    for item, value in zip(writes, values):
        if isinstance(item, loop_ir.KeepElement):
            _keep(context, item, value, is_streaming)
        elif isinstance(item, loop_ir.StoreElement):
            _store(context, item.access, value, is_streaming)
        elif isinstance(item, UpdateElement):
            old = emit_update(context, item, value)
            if isinstance(item.result, TilePlace):
                write_tile(context, item.result, old)


def emit_result(context: Context, item: ReduceElement, value: Register) -> Results:
    """Write the result of a reduction; a scalar one is handed on."""
    if isinstance(item.target, Variable):
        return {item.target: value}
    # A result of all lanes is one element, whatever the nest has.
    where = context if value.type.is_vector else replace(context, lanes=Lanes(1))
    write_tile(where, item.target, value)
    return {}


def _keep(context: Context, item: loop_ir.KeepElement, value: Register, is_streaming: bool) -> None:
    if isinstance(item.target, TilePlace):
        write_tile(context, item.target, value)
    elif not item.is_stored_too:
        _store(context, item.target, value, is_streaming)


def _store(context: Context, access: Access, value: Register, is_streaming: bool) -> None:
    builder, lanes = context.builder, context.lanes
    memory, position = address_of(context, access)
    stored = to_memory(builder, access.tensor.type.dtype, value)
    mask = mask_of(context, access)
    if is_streaming and lanes.tail is None and mask is None:
        assert isinstance(position, Strided)
        pointer = builder.offset(memory.pointer, position.base, memory.element)
        builder.store(builder.splat(stored, lanes.width), pointer, nontemporal=True)
    else:
        write(builder, memory, position, stored, lanes, mask)


def emit_store(context: Context, item: loop_ir.StoreElement) -> None:
    """A store of a scalar."""
    memory, position = address_of(context, item.access)
    value = register(context, item.value)
    stored = to_memory(context.builder, item.access.tensor.type.dtype, value)
    mask = mask_of(context, item.access)
    write(context.builder, memory, position, stored, context.lanes, mask)


def emit_update(context: Context, item: UpdateElement, value: Register) -> Register:
    """One atomic update; gives what was there, 0 where the mask does not hold."""
    builder = context.builder
    memory, position = address_of(context, item.access)
    condition = mask_of(context, item.access)
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
    builder: Builder,
    item: UpdateElement,
    pointer: Register,
    x: Register,
    expected: Register | None,
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
