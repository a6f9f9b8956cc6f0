"""Rules for loads, stores, atomics and barriers: the form a schedule asks for, or pointers."""

from __future__ import annotations

from tilesmith.analysis.effects import is_elsewhere
from tilesmith.backends.triton.emission.emitter import Emitter, Rules
from tilesmith.backends.triton.emission.spelling import Expr, call, literal, triton_dtype
from tilesmith.backends.triton.ops import accesses
from tilesmith.backends.triton.workarounds.special_values import update_of
from tilesmith.dtypes import BF16, F16, F32, F64, I32, DType
from tilesmith.exc import BackendUnsupported
from tilesmith.ir.ops.memory import Atomic, Load, ProgramBarrier, Store
from tilesmith.ir.types import Shape
from tilesmith.schedule.schedule import AccessOptions

_PLAIN = AccessOptions()


def find_block(
    emitter: Emitter, op: Load | Store | Atomic, shape: Shape, indexing: str
) -> accesses.BlockAccess | None:
    """The access as a block, where the schedule wants one and no lane is masked explicitly."""
    if indexing == "pointer" or op.mask is not None or is_elsewhere(op):
        return None
    unseen = emitter.unseen.axes(op) if indexing == "tensor_descriptor" else ()
    access = accesses.find_block_access(emitter, op.tensor, op.indices, shape, unseen)
    if access is None or indexing != "block_ptr":
        return access
    return access if accesses.has_block_pointer(emitter, access) else None


def _emit_load(emitter: Emitter, op: Load) -> None:
    """Read a tile; lanes outside it read as 0."""
    shape = op.result.tile.shape
    options = emitter.schedule.accesses.get(op.slot, _PLAIN)
    access = find_block(emitter, op, shape, options.indexing)
    expr = None
    if access is not None and options.indexing == "tensor_descriptor":
        descriptor = accesses.find_descriptor(emitter, access)
        if descriptor is not None:
            expr = accesses.from_descriptor(emitter, access, descriptor)
    elif access is not None:
        expr = _load_block(emitter, op, access)
    emitter.define(op.result, expr or _load_pointers(emitter, op))


def _load_block(emitter: Emitter, op: Load, access: accesses.BlockAccess) -> Expr:
    checks = accesses.boundary_check(access)
    if checks:
        checks.append('padding_option="zero"')
    name = _block_variable(emitter, op, access)
    shape = tuple(axis.dim for axis in access.tiles)
    loaded = call("tl.load", name, *checks, *_hints(emitter, op), shape=shape)
    return accesses.restore_ones(loaded, op.result.tile.shape)


def _block_variable(emitter: Emitter, op: Load | Store, access: accesses.BlockAccess) -> Expr:
    hint = f"{emitter.expr(op.tensor)}_block"
    return emitter.named(hint, accesses.block_pointer(emitter, access, op.indices))


def _load_pointers(emitter: Emitter, op: Load) -> Expr:
    address = accesses.pointer(emitter, op)
    mask = accesses.access_mask(emitter, op, op.result.tile.shape)
    arguments = [str(address)]
    if mask is not None:
        address = emitter.spelling.cover(address, mask.shape)
        arguments = [str(address), f"mask={mask}", f"other={_other(emitter, op)}"]
    return call("tl.load", *arguments, *_hints(emitter, op), shape=address.shape)


def _other(emitter: Emitter, op: Load) -> Expr:
    fill = emitter.facts.fills.get(op, 0)
    dtype = op.result.tile.dtype
    if dtype.is_bool:
        return literal(bool(fill))
    return literal(float(fill) if dtype.is_float else fill)


def _hints(emitter: Emitter, op: Load) -> list[str]:
    options = emitter.schedule.accesses.get(op.slot, _PLAIN)
    eviction = op.eviction or (options.eviction and f"evict_{options.eviction}")
    hints = [f'eviction_policy="{eviction}"'] if eviction else []
    if options.cache_modifier:
        hints.append(f'cache_modifier="{options.cache_modifier}"')
    return hints


def _emit_store(emitter: Emitter, op: Store) -> None:
    """Write a tile; lanes outside it are left alone."""
    options = emitter.schedule.accesses.get(op.slot, _PLAIN)
    access = find_block(emitter, op, op.value.tile.shape, options.indexing)
    cache = [f'cache_modifier="{options.cache_modifier}"'] if options.cache_modifier else []
    if access is not None and options.indexing == "tensor_descriptor":
        parts = accesses.count_parts(emitter, access)
        descriptor = accesses.find_descriptor(emitter, access, parts)
        if descriptor is not None:
            value = accesses.to_descriptor(emitter, access, descriptor, emitter.exact(op.value))
            _store_parts(emitter, descriptor, value, parts)
            return
    elif access is not None and access.tiles == access.axes[-len(access.shape) :]:
        _store_block(emitter, op, access, cache)
        return
    _store_pointers(emitter, op, cache)


def _store_parts(
    emitter: Emitter, descriptor: accesses.Descriptor, value: Expr, parts: int
) -> None:
    """Store a tile part by part: each needs only its share of shared memory."""
    shape = emitter.schedule.physical_shape(tuple(axis.dim for axis in descriptor.axes))
    for number, part in enumerate(accesses.split_last(emitter, value, shape, parts)):
        place = descriptor.offsets(number * shape[-1] // parts)
        emitter.writer.statement(f"{descriptor.name}.store", [place, str(part)])


def _store_block(
    emitter: Emitter, op: Store, access: accesses.BlockAccess, cache: list[str]
) -> None:
    name, value = str(_block_variable(emitter, op, access)), str(emitter.exact(op.value))
    emitter.writer.statement("tl.store", [name, value, *accesses.boundary_check(access), *cache])


def _store_pointers(emitter: Emitter, op: Store, cache: list[str]) -> None:
    value, shape = emitter.expr(op.value), op.value.tile.shape
    if op.value.tile.dtype is F64:
        # Triton takes a number for fp32, so one of more digits must say its type.
        value = emitter.spelling.typed(value, F64)
    address = emitter.spelling.cover(accesses.pointer(emitter, op), shape)
    arguments = [str(address), str(value), *_masked(emitter, op), *cache]
    emitter.writer.statement("tl.store", arguments)


def _masked(emitter: Emitter, op: Store | Atomic) -> list[str]:
    mask = accesses.access_mask(emitter, op, op.value.tile.shape)
    return [] if mask is None else [f"mask={mask}"]


_BITWISE = ("and", "or", "xor")
_WORD = 0xFFFF_FFFF
_DESCRIPTOR_ATOMICS = {
    "add": (F32, F16, BF16, I32),
    **dict.fromkeys((*_BITWISE, "min", "max"), (I32,)),
}


def _emit_atomic(emitter: Emitter, op: Atomic) -> None:
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
    shape, value = op.result.tile.shape, update_of(emitter, op)
    address = emitter.spelling.cover(accesses.pointer(emitter, op), shape)
    options = [*_masked(emitter, op), f'sem="{op.order}"']
    return call(f"tl.atomic_{op.kind}", address, value, *options, shape=shape)


def _compare_and_swap(emitter: Emitter, op: Atomic) -> Expr:
    """Triton's has no mask: lanes that must do nothing replace the first element by itself."""
    assert op.expected is not None
    _check(op, is_possible=op.value.tile.dtype.bits >= 16)
    shape = op.result.tile.shape
    address = emitter.spelling.cover(accesses.pointer(emitter, op), shape)
    expected, value = emitter.exact(op.expected), emitter.exact(op.value)
    mask = accesses.access_mask(emitter, op, shape)
    if mask is not None:
        address = call("tl.where", mask, address, emitter.expr(op.tensor), shape=shape)
        value = call("tl.where", mask, value, expected, shape=shape)
    return call("tl.atomic_cas", address, expected, value, f'sem="{op.order}"', shape=shape)


def _in_words(emitter: Emitter, op: Atomic) -> Expr:
    """Bits of an element of 8 or 16 bits, through the aligned word of 32 that holds it."""
    shape, dtype = op.result.tile.shape, op.value.tile.dtype
    bits = max(dtype.bits, 8)
    address = emitter.spelling.cover(accesses.pointer(emitter, op), shape).method("to", "tl.int64")
    place = emitter.named("address", address)
    shift = emitter.named("shift", Expr(f"(({place} & 3) * 8).to(tl.uint32)"))
    value = emitter.exact(op.value).method("to", f"tl.uint{bits}")
    low = value.method("to", "tl.uint32")
    ones = (1 << bits) - 1
    if op.kind == "and":
        # Ones all around the element leave its neighbours as they are.
        low = low.infix("^", literal(ones))
    word = Expr(f"({low}) << {shift}", shape=shape)
    if op.kind == "and":
        word = Expr(f"({word}) ^ {_WORD}", shape=shape)
    words = Expr(f"({place} & -4).to(tl.pointer_type(tl.uint32))", shape=shape)
    options = [*_masked(emitter, op), f'sem="{op.order}"']
    old = call(f"tl.atomic_{op.kind}", words, word, *options, shape=shape)
    if not emitter.uses.positions(op.result):
        return old
    element = f"(({emitter.named('word', old)} >> {shift}) & {ones})"
    return Expr(f"{element}.to({triton_dtype(dtype)})", shape=shape)


def _emit_descriptor_atomic(emitter: Emitter, op: Atomic) -> bool:
    indexing = emitter.schedule.atomics.get(op.slot, _PLAIN).indexing
    is_possible = (
        indexing == "tensor_descriptor"
        and emitter.schedule.target.has_tensor_descriptors
        and op.order == "relaxed"
        and op.value.tile.dtype in _DESCRIPTOR_ATOMICS.get(op.kind, ())
    )
    access = find_block(emitter, op, op.value.tile.shape, indexing) if is_possible else None
    descriptor = None if access is None else accesses.find_descriptor(emitter, access)
    if access is None or descriptor is None:
        return False
    value = accesses.to_descriptor(emitter, access, descriptor, emitter.exact(op.value))
    arguments = [descriptor.offsets(), str(value)]
    emitter.writer.statement(f"{descriptor.name}.atomic_{op.kind}", arguments)
    return True


RULES: Rules = {
    Load: _emit_load,
    Store: _emit_store,
    Atomic: _emit_atomic,
    # Orders the memory accesses of one program's threads.
    ProgramBarrier: lambda emitter, op: emitter.writer.line("tl.debug_barrier()"),
}
