"""Rules for loads, stores, atomics and barriers."""

from __future__ import annotations

from tilesmith.backends.triton.accesses import access_mask, cover, pointer
from tilesmith.backends.triton.emit import Emitter
from tilesmith.backends.triton.expressions import Expr, call, literal
from tilesmith.backends.triton.names import triton_dtype
from tilesmith.ir.ops.memory import Atomic, Load, ProgramBarrier, Store
from tilesmith.schedule.schedule import AccessOptions


def emit_load(emitter: Emitter, op: Load) -> None:
    """Read through pointers; lanes outside the tile read as 0."""
    shape = op.result.tile.shape
    address = pointer(emitter, op.tensor, op.indices)
    mask = access_mask(emitter, shape, op.mask)
    arguments = [str(address)]
    if mask is not None:
        address = cover(emitter, address, mask.shape)
        arguments = [str(address), f"mask={mask}", f"other={_other(emitter, op)}"]
    arguments += _hints(emitter, op)
    emitter.define(op.result, call("tl.load", *arguments, shape=address.shape))


def _other(emitter: Emitter, op: Load) -> Expr:
    fill = emitter.facts.fill_of(op)
    dtype = op.result.tile.dtype
    if dtype.is_bool:
        return literal(bool(fill))
    return literal(float(fill) if dtype.is_float else fill)


def _hints(emitter: Emitter, op: Load) -> list[str]:
    options = emitter.schedule.accesses.get(op.slot, AccessOptions())
    eviction = op.eviction or (options.eviction and f"evict_{options.eviction}")
    hints = [f'eviction_policy="{eviction}"'] if eviction else []
    if options.cache_modifier:
        hints.append(f'cache_modifier="{options.cache_modifier}"')
    return hints


def emit_store(emitter: Emitter, op: Store) -> None:
    """Write through pointers; lanes outside the tile are left alone."""
    shape = op.value.tile.shape
    address = cover(emitter, pointer(emitter, op.tensor, op.indices), shape)
    mask = access_mask(emitter, shape, op.mask)
    arguments = [str(address), str(emitter.expr(op.value))]
    if mask is not None:
        arguments.append(f"mask={mask}")
    options = emitter.schedule.accesses.get(op.slot, AccessOptions())
    if options.cache_modifier:
        arguments.append(f'cache_modifier="{options.cache_modifier}"')
    emitter.writer.statement("tl.store", arguments)


def emit_atomic(emitter: Emitter, op: Atomic) -> None:
    """Read-modify-write through pointers."""
    shape = op.result.tile.shape
    address = cover(emitter, pointer(emitter, op.tensor, op.indices), shape)
    mask = access_mask(emitter, shape, op.mask)
    value = emitter.expr(op.value)
    if value.is_untyped:
        value = call("tl.full", "[]", value, triton_dtype(op.value.tile.dtype))
    arguments = [str(address), str(value)]
    if mask is not None:
        arguments.append(f"mask={mask}")
    arguments.append(f'sem="{op.order}"')
    if emitter.uses.positions(op.result):
        emitter.define(op.result, call(f"tl.atomic_{op.kind}", *arguments, shape=shape))
    else:
        emitter.writer.statement(f"tl.atomic_{op.kind}", arguments)


def emit_program_barrier(emitter: Emitter, op: ProgramBarrier) -> None:
    """Order the memory accesses of one program's threads."""
    emitter.writer.line("tl.debug_barrier()")
