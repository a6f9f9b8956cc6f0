"""``hl.load``, ``hl.store`` and the atomics: reads and writes of host tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tilesmith.diagnostics import errors
from tilesmith.diagnostics.wording import kind_of
from tilesmith.dtypes import BOOL
from tilesmith.frontend.emission import as_tile, broadcast_to
from tilesmith.frontend.indexing import Access, broadcast_value, resolve_access
from tilesmith.frontend.sessions import current_tracer
from tilesmith.frontend.tensors import TensorRef, reference_of_unknown
from tilesmith.frontend.tile import Tile
from tilesmith.frontend.tracer import locate
from tilesmith.frontend.values import TileValue
from tilesmith.ir.ops.memory import MEMORY_ORDERS, Atomic, AtomicKind, Load, Store
from tilesmith.ir.types import TileType
from tilesmith.ir.values import Value

Rule = Callable[..., Any]


def _tensor(target: Any, function: str) -> TensorRef:
    if isinstance(target, torch.Tensor):
        return reference_of_unknown(target)
    if isinstance(target, TensorRef):
        return target
    if isinstance(target, TileValue):
        raise errors.AtomicOnDeviceTensor(
            function=function, target=target.value.name or "the operand", loc=locate()
        )
    raise errors.NonTensorSubscriptAssign(target=function, kind=kind_of(target), loc=locate())


def _mask(extra_mask: Any, access: Access) -> Value | None:
    if extra_mask is None:
        return None
    return broadcast_to(as_tile(extra_mask, BOOL), access.shape).value


def load(
    tensor: Any, index: Any, extra_mask: Any = None, eviction_policy: str | None = None
) -> TileValue:
    """Read the indexed elements; masked-off lanes read as 0.

    Example:
        ``v = hl.load(x, [t.index + 1], extra_mask=t.index + 1 < n)``
    """
    tracer = current_tracer("hl.load")
    if isinstance(tensor, TileValue):
        return tracer.dispatch("subscript", (tensor, index), {})
    ref = _tensor(tensor, "hl.load")
    access = resolve_access(ref, index)
    value = tracer.create(
        Load,
        TileType(ref.type.dtype, access.shape),
        tensor=ref.value,
        mask=_mask(extra_mask, access),
        indices=access.indices,
        eviction=eviction_policy or "",
    )
    return TileValue(value)


def store(tensor: Any, index: Any, value: Any, extra_mask: Any = None) -> None:
    """Write ``value``, converted to the tensor's element type and broadcast to the indexed shape.

    Example:
        ``hl.store(out, [t], v, extra_mask=v > 0)``
    """
    tracer = current_tracer("hl.store")
    ref = _tensor(tensor, "hl.store")
    if isinstance(value, torch.Tensor):
        value = reference_of_unknown(value)
    if isinstance(value, TensorRef):
        value = load(value, ())
    if isinstance(value, Tile) or not isinstance(value, (TileValue, int, float)):
        raise errors.RequiresTensorInAssignment(
            kind=kind_of(value), tensor=ref.source, loc=locate()
        )
    access = resolve_access(ref, index)
    stored = broadcast_value(value, access, ref)
    tracer.builder.effect(
        Store,
        tensor=ref.value,
        value=stored.value,
        mask=_mask(extra_mask, access),
        indices=access.indices,
    )


def _atomic(kind: AtomicKind) -> Rule:
    name = f"hl.atomic_{kind.value}"

    def rule(target: Any, index: Any, value: Any, sem: str = "relaxed") -> TileValue:
        tracer = current_tracer(name)
        ref = _tensor(target, name)
        if sem not in MEMORY_ORDERS:
            raise errors.InvalidArgumentValue(
                function=name,
                problem=f"sem={sem!r} is none of {', '.join(MEMORY_ORDERS)}",
                loc=locate(),
            )
        access = resolve_access(ref, index)
        stored = broadcast_value(value, access, ref)
        previous = tracer.create(
            Atomic,
            TileType(ref.type.dtype, access.shape),
            tensor=ref.value,
            value=stored.value,
            mask=None,
            indices=access.indices,
            kind=kind.value,
            order=sem,
        )
        return TileValue(previous)

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

MEMORY: dict[str, Rule] = {"load": load, "store": store, "__getitem__": load, "__setitem__": store}
