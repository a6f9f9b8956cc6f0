"""``hl.load`` and ``hl.store``: reads and writes of host tensors and of stacks of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tilesmith.diagnostics import errors
from tilesmith.diagnostics.wording import kind_of
from tilesmith.dtypes import BOOL
from tilesmith.frontend.emission import apply, as_tile, broadcast_to
from tilesmith.frontend.indexing import Access, broadcast_value, resolve_access
from tilesmith.frontend.jagged import access_mask
from tilesmith.frontend.sessions import current_tracer
from tilesmith.frontend.stack_tensors import StackTensor
from tilesmith.frontend.tensors import TensorRef, reference_of_unknown
from tilesmith.frontend.tile import Tile
from tilesmith.frontend.tracer import locate
from tilesmith.frontend.values import TileValue
from tilesmith.ir.ops.memory import Load, Store
from tilesmith.ir.types import TileType
from tilesmith.ir.values import Value

Rule = Callable[..., Any]
EVICTION_POLICIES = ("", "evict_first", "evict_last")


def host_tensor(target: Any, function: str) -> TensorRef:
    """The tensor in memory that a function is to work on."""
    if isinstance(target, torch.Tensor):
        return reference_of_unknown(target)
    if isinstance(target, TensorRef):
        return target
    raise errors.NonTensorSubscriptAssign(
        target=f"the target of {function}", kind=kind_of(target), loc=locate()
    )


def _resolve(tensor: Any, index: Any, function: str) -> tuple[TensorRef, Access, Value | None]:
    if isinstance(tensor, StackTensor):
        return tensor.example, *tensor.resolve(index)
    ref = host_tensor(tensor, function)
    return ref, resolve_access(ref, index), None


def lane_mask(extra_mask: Any, access: Access, *, writes: bool = False) -> Value | None:
    """The explicit mask of an access: the user's own and that of jagged tiles."""
    jagged = access_mask(access.shape, writes=writes)
    if extra_mask is None:
        return None if jagged is None else broadcast_to(jagged, access.shape).value
    mask = broadcast_to(as_tile(extra_mask, BOOL), access.shape)
    return mask.value if jagged is None else apply("and", mask, jagged).value


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
    if (eviction_policy or "") not in EVICTION_POLICIES:
        raise errors.InvalidArgumentValue(
            function="hl.load",
            problem=f"eviction_policy={eviction_policy!r} is none of evict_first, evict_last",
            loc=locate(),
        )
    ref, access, bases = _resolve(tensor, index, "hl.load")
    value = tracer.create(
        Load,
        TileType(ref.type.dtype, access.shape),
        tensor=ref.value,
        mask=lane_mask(extra_mask, access),
        bases=bases,
        indices=access.indices,
        eviction=eviction_policy or "",
    )
    return TileValue(value)


def reject_stored_value(value: Any, ref: TensorRef) -> None:
    """An error unless the value can be stored: a device value or a number."""
    if isinstance(value, Tile) or not isinstance(value, (TileValue, int, float)):
        raise errors.RequiresTensorInAssignment(
            kind=kind_of(value), tensor=ref.source, loc=locate()
        )


def store(tensor: Any, index: Any, value: Any, extra_mask: Any = None) -> None:
    """Write ``value``, converted to the tensor's element type and broadcast to the indexed shape.

    Example:
        ``hl.store(out, [t], v, extra_mask=v > 0)``
    """
    tracer = current_tracer("hl.store")
    if isinstance(tensor, TileValue):
        raise errors.DeviceTensorSubscriptAssignmentNotAllowed(
            name=tensor.value.name or "the value", loc=locate()
        )
    if isinstance(value, torch.Tensor):
        value = reference_of_unknown(value)
    if isinstance(value, TensorRef):
        value = load(value, ())
    ref, access, bases = _resolve(tensor, index, "hl.store")
    reject_stored_value(value, ref)
    stored = broadcast_value(value, access, ref)
    tracer.builder.effect(
        Store,
        tensor=ref.value,
        value=stored.value,
        mask=lane_mask(extra_mask, access, writes=True),
        bases=bases,
        indices=access.indices,
    )


MEMORY: dict[str, Rule] = {"load": load, "store": store, "__getitem__": load, "__setitem__": store}
