"""Rules for loads, stores and barriers: the form a schedule asks for, or pointers."""

from __future__ import annotations

from collections.abc import Mapping

from tilesmith.analysis.effects import is_elsewhere
from tilesmith.backends.triton.emission.emitter import Emitter
from tilesmith.backends.triton.emission.expressions import Expr, call, literal
from tilesmith.backends.triton.emission.spelling import triton_dtype
from tilesmith.backends.triton.ops.accesses import (
    BlockAccess,
    access_mask,
    block_pointer,
    boundary_check,
    cover,
    find_block_access,
    has_block_pointer,
    pointer,
    restore_ones,
)  # fmt: skip
from tilesmith.backends.triton.ops.tensor_descriptors import (
    Descriptor,
    count_parts,
    find_descriptor,
    from_descriptor,
    split_last,
    to_descriptor,
)  # fmt: skip
from tilesmith.dtypes import F64
from tilesmith.ir.ops.memory import Atomic, Load, ProgramBarrier, Store
from tilesmith.ir.types import Shape
from tilesmith.schedule.schedule import AccessOptions


def access_options(table: Mapping[int, AccessOptions], slot: int) -> AccessOptions:
    """What the schedule says about an access, or the plain form."""
    return table.get(slot, AccessOptions())


def find_block(
    emitter: Emitter, op: Load | Store | Atomic, shape: Shape, indexing: str
) -> BlockAccess | None:
    """The access as a block, where the schedule wants one and no lane is masked explicitly."""
    if indexing == "pointer" or op.mask is not None or is_elsewhere(op):
        return None
    access = find_block_access(emitter, op.tensor, op.indices, shape)
    if access is None or indexing != "block_ptr":
        return access
    return access if has_block_pointer(emitter, access) else None


def emit_load(emitter: Emitter, op: Load) -> None:
    """Read a tile; lanes outside it read as 0."""
    shape = op.result.tile.shape
    options = access_options(emitter.schedule.accesses, op.slot)
    access = find_block(emitter, op, shape, options.indexing)
    expr = None
    if access is not None and options.indexing == "tensor_descriptor":
        descriptor = find_descriptor(emitter, access)
        if descriptor is not None:
            expr = restore_ones(from_descriptor(emitter, access, descriptor), shape)
    elif access is not None:
        expr = _load_block(emitter, op, access)
    emitter.define(op.result, expr or _load_pointers(emitter, op))


def _load_block(emitter: Emitter, op: Load, access: BlockAccess) -> Expr:
    checks = boundary_check(access)
    if checks:
        checks.append('padding_option="zero"')
    address = block_pointer(emitter, access, op.indices)
    name = emitter.spelling.names.fresh(f"{emitter.expr(op.tensor)}_block")
    emitter.assign(name, address)
    shape = tuple(axis.dim for axis in access.tiles)
    loaded = call("tl.load", name, *checks, *_hints(emitter, op), shape=shape)
    return restore_ones(loaded, op.result.tile.shape)


def _load_pointers(emitter: Emitter, op: Load) -> Expr:
    address = pointer(emitter, op)
    mask = access_mask(emitter, op, op.result.tile.shape)
    arguments = [str(address)]
    if mask is not None:
        address = cover(emitter, address, mask.shape)
        arguments = [str(address), f"mask={mask}", f"other={_other(emitter, op)}"]
    return call("tl.load", *arguments, *_hints(emitter, op), shape=address.shape)


def _other(emitter: Emitter, op: Load) -> Expr:
    fill = emitter.facts.fill_of(op)
    dtype = op.result.tile.dtype
    if dtype.is_bool:
        return literal(bool(fill))
    return literal(float(fill) if dtype.is_float else fill)


def _hints(emitter: Emitter, op: Load) -> list[str]:
    options = access_options(emitter.schedule.accesses, op.slot)
    eviction = op.eviction or (options.eviction and f"evict_{options.eviction}")
    hints = [f'eviction_policy="{eviction}"'] if eviction else []
    if options.cache_modifier:
        hints.append(f'cache_modifier="{options.cache_modifier}"')
    return hints


def emit_store(emitter: Emitter, op: Store) -> None:
    """Write a tile; lanes outside it are left alone."""
    options = access_options(emitter.schedule.accesses, op.slot)
    access = find_block(emitter, op, op.value.tile.shape, options.indexing)
    cache = [f'cache_modifier="{options.cache_modifier}"'] if options.cache_modifier else []
    if access is not None and options.indexing == "tensor_descriptor":
        parts = count_parts(emitter, access)
        descriptor = find_descriptor(emitter, access, parts)
        if descriptor is not None:
            value = to_descriptor(emitter, access, descriptor, emitter.exact(op.value))
            _store_parts(emitter, descriptor, value, parts)
            return
    elif access is not None and access.tiles == access.axes[-len(access.shape) :]:
        _store_block(emitter, op, access, cache)
        return
    _store_pointers(emitter, op, cache)


def _store_parts(emitter: Emitter, descriptor: Descriptor, value: Expr, parts: int) -> None:
    """Store a tile part by part: each needs only its share of shared memory."""
    shape = emitter.schedule.physical_shape(tuple(axis.dim for axis in descriptor.axes))
    for number, part in enumerate(split_last(emitter, value, shape, parts)):
        place = descriptor.offsets(number * shape[-1] // parts)
        emitter.writer.statement(f"{descriptor.name}.store", [place, str(part)])


def _store_block(emitter: Emitter, op: Store, access: BlockAccess, cache: list[str]) -> None:
    address = block_pointer(emitter, access, op.indices)
    name = emitter.spelling.names.fresh(f"{emitter.expr(op.tensor)}_block")
    emitter.assign(name, address)
    value = str(emitter.exact(op.value))
    emitter.writer.statement("tl.store", [name, value, *boundary_check(access), *cache])


def _store_pointers(emitter: Emitter, op: Store, cache: list[str]) -> None:
    shape = op.value.tile.shape
    address = cover(emitter, pointer(emitter, op), shape)
    mask = access_mask(emitter, op, shape)
    masked = [] if mask is None else [f"mask={mask}"]
    value = _stored(emitter, op)
    emitter.writer.statement("tl.store", [str(address), str(value), *masked, *cache])


def _stored(emitter: Emitter, op: Store) -> Expr:
    """The value; Triton takes a number for fp32, so one of more digits must say its type."""
    value, dtype = emitter.expr(op.value), op.value.tile.dtype
    if not value.is_untyped or dtype is not F64:
        return value
    return call("tl.full", "[]", value, triton_dtype(dtype))


def emit_program_barrier(emitter: Emitter, op: ProgramBarrier) -> None:
    """Order the memory accesses of one program's threads."""
    emitter.writer.line("tl.debug_barrier()")
