"""Rules for atomics: descriptors, instructions, words around small elements, compare and swap."""

from __future__ import annotations

from tilesmith.backends.triton.emission.emitter import Emitter
from tilesmith.backends.triton.emission.expressions import Expr, binary, call, literal, method
from tilesmith.backends.triton.emission.spelling import triton_dtype
from tilesmith.backends.triton.ops.accesses import access_mask, cover, pointer
from tilesmith.backends.triton.ops.memory import access_options, find_block
from tilesmith.backends.triton.ops.tensor_descriptors import find_descriptor, to_descriptor
from tilesmith.diagnostics.errors import BackendUnsupported
from tilesmith.dtypes import BF16, F16, F32, F64, I32, DType
from tilesmith.ir.ops.memory import Atomic
from tilesmith.ir.values import Value

_BITWISE = ("and", "or", "xor")
_WORD = 0xFFFF_FFFF
_DESCRIPTOR_ATOMICS = {
    "add": (F32, F16, BF16, I32),
    **dict.fromkeys((*_BITWISE, "min", "max"), (I32,)),
}


def emit_atomic(emitter: Emitter, op: Atomic) -> None:
    """Read-modify-write; the previous values are kept only when they are used."""
    is_used = bool(emitter.uses.positions(op.result))
    if not is_used and _emit_descriptor_atomic(emitter, op):
        return
    dtype = op.value.tile.dtype
    if op.kind == "cas":
        made = _compare_and_swap(emitter, op)
    elif op.kind in _BITWISE and dtype.bits < I32.bits:
        made = _in_words(emitter, op)
    else:
        made = _plain(emitter, op)
    if is_used:
        emitter.define(op.result, made)
    else:
        emitter.writer.statement(made.text, list(made.arguments or ()))


def _check(op: Atomic, *, is_possible: bool) -> None:
    if not is_possible:
        dtype = op.value.tile.dtype.name
        raise BackendUnsupported(
            operation=f"hl.atomic_{op.kind} on elements of {dtype}", backend="triton", loc=op.loc
        )


def _has_instruction(kind: str, dtype: DType) -> bool:
    if dtype in (F16, BF16):
        return kind == "add"
    return dtype in (F32, F64) or dtype.bits >= I32.bits


def _plain(emitter: Emitter, op: Atomic) -> Expr:
    _check(op, is_possible=_has_instruction(op.kind, op.value.tile.dtype))
    shape = op.result.tile.shape
    address = cover(emitter, pointer(emitter, op), shape)
    mask = access_mask(emitter, op, shape)
    masked = [] if mask is None else [f"mask={mask}"]
    value = _typed(emitter, op.value)
    return call(f"tl.atomic_{op.kind}", address, value, *masked, f'sem="{op.order}"', shape=shape)


def _compare_and_swap(emitter: Emitter, op: Atomic) -> Expr:
    """Triton's has no mask: lanes that must do nothing replace the first element by itself."""
    assert op.expected is not None
    _check(op, is_possible=op.value.tile.dtype.bits >= 16)
    shape = op.result.tile.shape
    address = cover(emitter, pointer(emitter, op), shape)
    expected, value = emitter.exact(op.expected), emitter.exact(op.value)
    mask = access_mask(emitter, op, shape)
    if mask is not None:
        address = call("tl.where", mask, address, emitter.expr(op.tensor), shape=shape)
        value = call("tl.where", mask, value, expected, shape=shape)
    return call("tl.atomic_cas", address, expected, value, f'sem="{op.order}"', shape=shape)


def _in_words(emitter: Emitter, op: Atomic) -> Expr:
    """Bits of an element of 8 or 16 bits, through the aligned word of 32 that holds it."""
    shape, dtype = op.result.tile.shape, op.value.tile.dtype
    names, bits = emitter.spelling.names, max(dtype.bits, 8)
    address = method(cover(emitter, pointer(emitter, op), shape), "to", "tl.int64")
    place, shift = names.fresh("address"), names.fresh("shift")
    emitter.assign(place, address)
    emitter.assign(shift, Expr(f"(({place} & 3) * 8).to(tl.uint32)", shape=shape))
    value = method(emitter.exact(op.value), "to", f"tl.uint{bits}")
    low = method(value, "to", "tl.uint32")
    ones = (1 << bits) - 1
    if op.kind == "and":
        # Ones all around the element leave its neighbours as they are.
        low = binary("^", low, literal(ones))
    word = Expr(f"({low}) << {shift}", shape=shape)
    if op.kind == "and":
        word = Expr(f"({word}) ^ {_WORD}", shape=shape)
    words = Expr(f"({place} & -4).to(tl.pointer_type(tl.uint32))", shape=shape)
    mask = access_mask(emitter, op, shape)
    masked = [] if mask is None else [f"mask={mask}"]
    options = [*masked, f'sem="{op.order}"']
    old = call(f"tl.atomic_{op.kind}", words, word, *options, shape=shape)
    if not emitter.uses.positions(op.result):
        return old
    previous = names.fresh("word")
    emitter.assign(previous, old)
    element = f"(({previous} >> {shift}) & {ones})"
    target = "(tl.int1)" if dtype.is_bool else f"({triton_dtype(dtype)})"
    return Expr(f"{element}.to{target}", shape=shape)


def _typed(emitter: Emitter, value: Value) -> Expr:
    expr = emitter.expr(value)
    if not expr.is_untyped:
        return expr
    return call("tl.full", "[]", expr, triton_dtype(value.tile.dtype))


def _emit_descriptor_atomic(emitter: Emitter, op: Atomic) -> bool:
    indexing = access_options(emitter.schedule.atomics, op.slot).indexing
    dtype = op.value.tile.dtype
    is_possible = (
        indexing == "tensor_descriptor"
        and emitter.schedule.target.has_tensor_descriptors
        and op.order == "relaxed"
        and dtype in _DESCRIPTOR_ATOMICS.get(op.kind, ())
    )
    access = find_block(emitter, op, op.value.tile.shape, indexing) if is_possible else None
    descriptor = None if access is None else find_descriptor(emitter, access)
    if access is None or descriptor is None:
        return False
    value = to_descriptor(emitter, access, descriptor, emitter.exact(op.value))
    arguments = [descriptor.offsets(), str(value)]
    emitter.writer.statement(f"{descriptor.name}.atomic_{op.kind}", arguments)
    return True
