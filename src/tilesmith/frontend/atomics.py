"""``hl.atomic_*``: read-modify-write of elements of host tensors; gives their previous values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilesmith.diagnostics import errors
from tilesmith.dtypes import DType
from tilesmith.frontend.indexing import broadcast_value, resolve_access
from tilesmith.frontend.memory import host_tensor, lane_mask, reject_stored_value
from tilesmith.frontend.sessions import current_tracer
from tilesmith.frontend.stack_tensors import StackTensor
from tilesmith.frontend.tracer import locate
from tilesmith.frontend.values import TileValue
from tilesmith.ir.ops.memory import MEMORY_ORDERS, Atomic, AtomicKind
from tilesmith.ir.types import TileType

Rule = Callable[..., TileValue]
_BITWISE = (AtomicKind.AND, AtomicKind.OR, AtomicKind.XOR)
_NUMERIC = (AtomicKind.ADD, AtomicKind.MAX, AtomicKind.MIN)


def _check(name: str, kind: AtomicKind, dtype: DType, sem: Any) -> None:
    if sem not in MEMORY_ORDERS:
        raise errors.InvalidArgumentValue(
            function=name,
            problem=f"sem={sem!r} is none of {', '.join(MEMORY_ORDERS)}",
            loc=locate(),
        )
    if kind in _NUMERIC:
        is_possible, expected = not dtype.is_bool, "numbers"
    elif kind in _BITWISE:
        is_possible, expected = not dtype.is_float, "integers or bools"
    else:
        is_possible, expected = kind is AtomicKind.XCHG or dtype.is_integer, "integers"
    if not is_possible:
        raise errors.InvalidArgumentKind(
            function=name,
            problem=f"the target has elements of {dtype.name}, expected {expected}",
            loc=locate(),
        )


def _update(
    kind: AtomicKind, target: Any, index: Any, value: Any, sem: str, expected: Any = None
) -> TileValue:
    name = f"hl.atomic_{kind.value}"
    tracer = current_tracer(name)
    if isinstance(target, TileValue):
        raise errors.AtomicOnDeviceTensor(
            function=name, target=target.value.name or "the operand", loc=locate()
        )
    if isinstance(target, StackTensor):
        raise errors.InvalidArgumentKind(
            function=name, problem="the target is a stack of tensors, expected one", loc=locate()
        )
    ref = host_tensor(target, name)
    _check(name, kind, ref.type.dtype, sem)
    access = resolve_access(ref, index)
    operands: dict[str, Any] = {}
    for role, operand in (("value", value), ("expected", expected)):
        if role == "value" or kind is AtomicKind.CAS:
            reject_stored_value(operand, ref)
            operands[role] = broadcast_value(operand, access, ref).value
    previous = tracer.create(
        Atomic,
        TileType(ref.type.dtype, access.shape),
        tensor=ref.value,
        mask=lane_mask(None, access, writes=True),
        indices=access.indices,
        kind=kind.value,
        order=sem,
        **operands,
    )
    return TileValue(previous)


def _atomic(kind: AtomicKind) -> Rule:
    def rule(target: Any, index: Any, value: Any, sem: str = "relaxed") -> TileValue:
        return _update(kind, target, index, value, sem)

    rule.__name__ = f"atomic_{kind.value}"
    rule.__doc__ = f"Atomically {kind.value} into the indexed elements; gives the previous values."
    return rule


atomic_add = _atomic(AtomicKind.ADD)
atomic_and = _atomic(AtomicKind.AND)
atomic_or = _atomic(AtomicKind.OR)
atomic_xor = _atomic(AtomicKind.XOR)
atomic_max = _atomic(AtomicKind.MAX)
atomic_min = _atomic(AtomicKind.MIN)
atomic_xchg = _atomic(AtomicKind.XCHG)


def atomic_cas(
    target: Any, index: Any, expected: Any, value: Any, sem: str = "relaxed"
) -> TileValue:
    """Store ``value`` where the element is ``expected``; gives the previous values.

    Example:
        ``was = hl.atomic_cas(locks, [i], 0, 1, sem="acquire")``
    """
    return _update(AtomicKind.CAS, target, index, value, sem, expected)
