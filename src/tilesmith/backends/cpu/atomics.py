"""Read-modify-write of one element: an instruction where there is one, else compare and swap."""

from __future__ import annotations

from tilesmith.backends.cpu.builder import Builder
from tilesmith.backends.cpu.casts import to_memory, to_register
from tilesmith.backends.cpu.registers import LType, Register, memory_element
from tilesmith.backends.cpu.scalar_functions import apply
from tilesmith.dtypes import DType, Kind
from tilesmith.ir.ops.memory import Atomic

_ORDERS = {
    "relaxed": "monotonic",
    "acquire": "acquire",
    "release": "release",
    "acq_rel": "acq_rel",
}
_FUNCTIONS = {"add": "add", "and": "and", "or": "or", "xor": "xor", "max": "maximum"}
_FUNCTIONS["min"] = "minimum"


_FAILURE_ORDERS = {"release": "monotonic", "acq_rel": "acquire"}


def emit_atomic(
    b: Builder, op: Atomic, pointer: Register, x: Register, expected: Register | None = None
) -> Register:
    """Update the element at ``pointer``; gives what was there, in register form."""
    if expected is not None:
        return _swap_if_equal(b, op, pointer, expected, x)
    dtype = op.tensor.tensor.dtype
    order = _ORDERS[op.order]
    if op.kind == "xchg" or dtype.is_integer:
        value = to_memory(b, dtype, x)
        bits = b.convert("bitcast", value, f"i{dtype.bits}")
        old = b.value(
            bits.type, f"atomicrmw {_instruction(op.kind, dtype)} {pointer}, {bits} {order}"
        )
        return to_register(b, dtype, b.convert("bitcast", old, memory_element(dtype)))
    return _compare_and_swap(b, op, pointer, x)


def _instruction(kind: str, dtype: DType) -> str:
    is_unsigned = dtype.kind is Kind.UNSIGNED and kind in ("max", "min")
    return f"u{kind}" if is_unsigned else kind


def _swap_if_equal(
    b: Builder, op: Atomic, pointer: Register, expected: Register, x: Register
) -> Register:
    dtype = op.tensor.tensor.dtype
    order = _ORDERS[op.order]
    old, new = (to_memory(b, dtype, value) for value in (expected, x))
    pair = b.new(LType("{ " + f"{old.type}, i1" + " }"))
    failed = _FAILURE_ORDERS.get(order, order)
    b.emit(f"{pair.text} = cmpxchg {pointer}, {old}, {new} {order} {failed}")
    return to_register(b, dtype, b.value(old.type, f"extractvalue {pair}, 0"))


def _compare_and_swap(b: Builder, op: Atomic, pointer: Register, x: Register) -> Register:
    dtype = op.tensor.tensor.dtype
    bits = LType(f"i{dtype.bits}")
    element = memory_element(dtype)
    order = _ORDERS[op.order]
    read_order = _FAILURE_ORDERS.get(order, order)
    first = b.value(bits, f"load atomic {bits}, {pointer} monotonic, align {dtype.bits // 8}")

    def attempt(state: tuple[Register, ...]) -> list[Register]:
        old = to_register(b, dtype, b.convert("bitcast", state[0], element))
        new = to_memory(b, dtype, apply(b, _FUNCTIONS[op.kind], dtype, [old, x]))
        swapped = b.convert("bitcast", new, bits.element)
        pair = b.new(LType("{ " + f"{bits}, i1" + " }"))
        text = f"cmpxchg {pointer}, {state[0]}, {swapped} {order} {read_order}"
        b.emit(f"{pair.text} = {text}")
        seen = b.value(bits, f"extractvalue {pair}, 0")
        done = b.value(LType("i1"), f"extractvalue {pair}, 1")
        return [seen, done]

    false = Register("false", LType("i1"))

    def is_open(state: tuple[Register, ...]) -> Register:
        return b.binary("xor", state[1], Register("true", LType("i1")))

    found = b.repeat(is_open, attempt, (first, false))
    return to_register(b, dtype, b.convert("bitcast", found[0], element))
