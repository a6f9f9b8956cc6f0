"""Reads and writes of host tensors: ``hl.load``, ``hl.store``, ``hl.atomic_*``.

``hl.stacktensor_like`` gives tensors elsewhere in memory, found by their addresses.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import torch

import tilesmith.exc as errors
from tilesmith.diagnostics.wording import kind_of
from tilesmith.dtypes import BOOL, U64, DType
from tilesmith.frontend.language.indexing import (
    Access,
    broadcast_value,
    check_tiles,
    resolve_access,
)
from tilesmith.frontend.language.jagged import access_mask
from tilesmith.frontend.language.parameter_names import also_named
from tilesmith.frontend.refusals import invalid_kind, invalid_value
from tilesmith.frontend.tracing.emission import Rule, apply, as_tile, broadcast_to, expand_dims
from tilesmith.frontend.tracing.packed_tile import bytes_of, is_stored_as_is, packed_if
from tilesmith.frontend.tracing.tensors import TensorRef, reference_of_unknown
from tilesmith.frontend.tracing.tile import Tile
from tilesmith.frontend.tracing.tracer import current_tracer, find_tracer
from tilesmith.frontend.tracing.values import TileValue, TorchOperand, dispatch
from tilesmith.ir.ops.memory import MEMORY_ORDERS, Atomic, AtomicKind, Load, Store
from tilesmith.ir.types import TileType, Value


class StackTensor(TorchOperand):
    """Tensors that look like ``tensor_like``, one at each address of ``dev_ptrs``."""

    user_name = "a stack of tensors"

    @also_named(example="tensor_like", ptrs="dev_ptrs")
    def __init__(self, tensor_like: Any, dev_ptrs: Any) -> None:
        self.tensor_like, self.dev_ptrs = _checked_stack(tensor_like, dev_ptrs)

    @property
    def dtype(self) -> torch.dtype:
        """The element type of every tensor of the stack."""
        return self.tensor_like.dtype

    @property
    def shape(self) -> tuple[Any, ...]:
        """Sizes of the pointers, then of the example."""
        return (*self.dev_ptrs.shape, *self.tensor_like.shape)

    def resolve(self, index: Any) -> tuple[Access, Value]:
        """Aligned indices, the accessed shape, and the base address of every lane."""
        inner = resolve_access(self.tensor_like, index)
        lead, rank = self.dev_ptrs.tile.rank, len(inner.shape)
        indices = [
            expand_dims(TileValue(value), tuple(range(lead))).value if value.tile.rank else value
            for value in inner.indices
        ]
        bases = expand_dims(self.dev_ptrs, tuple(range(lead, lead + rank)))
        shape = (*self.dev_ptrs.tile.shape, *inner.shape)
        within = inner.within
        wide = None if within is None else expand_dims(within, tuple(range(lead)))
        return Access(tuple(indices), shape, wide), bases.value

    def __getitem__(self, index: Any) -> Any:
        return dispatch("load", (self, index), {})

    def __setitem__(self, index: Any, value: Any) -> None:
        dispatch("store", (self, index, value), {})

    def __repr__(self) -> str:
        return f"<stack of tensors like {self.tensor_like.source}>"


@also_named(example="tensor_like", ptrs="dev_ptrs")
def stacktensor_like(tensor_like: Any, dev_ptrs: Any) -> StackTensor:
    """Tensors of the dtype, shape and strides of ``tensor_like`` at the addresses ``dev_ptrs``.

    A load has the shape of ``dev_ptrs``, then that of the index.

    Example:
        ``out[t, u] = hl.stacktensor_like(like, addresses[t])[u]``
    """
    return StackTensor(tensor_like, dev_ptrs)


def _checked_stack(example: Any, ptrs: Any) -> tuple[TensorRef, TileValue]:
    if find_tracer() is None:
        try:
            current_tracer("hl.stacktensor_like")
        except errors.DeviceAPIOnHost:
            raise errors.StackTensorcOnHost() from None
    if isinstance(example, TileValue):
        raise errors.StackTensorExampleOnDevice()
    example, ptrs = _reference(example), _reference(ptrs)
    if not isinstance(example, TensorRef):
        raise invalid_kind(
            "hl.stacktensor_like", f"the example is {kind_of(example)}, expected a host tensor"
        )
    if isinstance(ptrs, TensorRef):
        raise errors.StackTensorDevPtrOnHost(tensor=ptrs.source)
    if not isinstance(ptrs, TileValue) or ptrs.tile.dtype != U64:
        found = ptrs.dtype if isinstance(ptrs, TileValue) else kind_of(ptrs)
        raise errors.StackTensorDevPtrDtype(dtype=str(found))
    return example, ptrs


def _reference(tensor: Any) -> Any:
    return reference_of_unknown(tensor) if isinstance(tensor, torch.Tensor) else tensor


EVICTION_POLICIES = ("", "evict_first", "evict_last")


def host_tensor(target: Any, function: str) -> TensorRef:
    """The tensor in memory that a function is to work on."""
    if isinstance(target, torch.Tensor):
        return reference_of_unknown(target)
    if isinstance(target, TensorRef):
        return target
    raise errors.NonTensorSubscriptAssign(target=f"the target of {function}", kind=kind_of(target))


def _resolve(tensor: Any, index: Any, function: str) -> tuple[TensorRef, Access, Value | None]:
    if isinstance(tensor, StackTensor):
        return tensor.tensor_like, *tensor.resolve(index)
    ref = host_tensor(tensor, function)
    return ref, resolve_access(ref, index), None


def lane_mask(extra_mask: Any, access: Access, *, writes: bool = False) -> Value | None:
    """The explicit mask of an access: the user's own, of jagged tiles, and of ends of tensors."""
    given = None if extra_mask is None else as_tile(extra_mask, BOOL)
    known = [given, access_mask(access.shape, writes=writes), access.within]
    masks = [broadcast_to(mask, access.shape) for mask in known if mask is not None]
    return reduce(lambda left, right: apply("and", left, right), masks).value if masks else None


def load(
    tensor: Any, index: Any, extra_mask: Any = None, eviction_policy: str | None = None
) -> Any:
    """Read the indexed elements; masked-off lanes read as 0.

    Example:
        ``v = hl.load(x, [t.index + 1], extra_mask=t.index + 1 < n)``
    """
    tracer = current_tracer("hl.load")
    if isinstance(tensor, TileValue):
        return tracer.dispatch("subscript", (tensor, index), {})
    if (eviction_policy or "") not in EVICTION_POLICIES:
        raise invalid_value(
            "hl.load", f"eviction_policy={eviction_policy!r} is none of evict_first, evict_last"
        )
    ref, access, bases = _resolve(tensor, index, "hl.load")
    if extra_mask is None:
        check_tiles(ref, index)
    value = tracer.create(
        Load,
        TileType(ref.type.dtype, access.shape),
        tensor=ref.value,
        mask=lane_mask(extra_mask, access),
        bases=bases,
        indices=access.indices,
        eviction=eviction_policy or "",
    )
    return packed_if(ref.dtype, TileValue(value))


def reject_stored_value(value: Any, ref: TensorRef) -> None:
    """An error unless the value can be stored: a device value or a number."""
    is_value = isinstance(bytes_of(value), (TileValue, int, float)) and not isinstance(value, Tile)
    if not is_value or not is_stored_as_is(value, ref.dtype):
        raise errors.RequiresTensorInAssignment(kind=kind_of(value), tensor=ref.source)


def store(tensor: Any, index: Any, value: Any, extra_mask: Any = None) -> None:
    """Write ``value``, converted to the tensor's element type and broadcast to the indexed shape.

    Example:
        ``hl.store(out, [t], v, extra_mask=v > 0)``
    """
    tracer = current_tracer("hl.store")
    if isinstance(tensor, TileValue):
        raise errors.DeviceTensorSubscriptAssignmentNotAllowed(
            name=tensor.value.name or "the value"
        )
    if isinstance(value, torch.Tensor):
        value = reference_of_unknown(value)
    if isinstance(value, TensorRef):
        value = load(value, ())
    ref, access, bases = _resolve(tensor, index, "hl.store")
    if extra_mask is None:
        check_tiles(ref, index)
    reject_stored_value(value, ref)
    stored = broadcast_value(bytes_of(value), access, ref)
    tracer.builder.effect(
        Store,
        tensor=ref.value,
        value=stored.value,
        mask=lane_mask(extra_mask, access, writes=True),
        bases=bases,
        indices=access.indices,
    )


MEMORY: dict[str, Rule] = {"load": load, "store": store, "__getitem__": load, "__setitem__": store}

AtomicRule = Callable[..., TileValue]
_BITWISE = (AtomicKind.AND, AtomicKind.OR, AtomicKind.XOR)
_NUMERIC = (AtomicKind.ADD, AtomicKind.MAX, AtomicKind.MIN)


def _check(name: str, kind: AtomicKind, dtype: DType, sem: Any) -> None:
    if sem not in MEMORY_ORDERS:
        raise invalid_value(name, f"sem={sem!r} is none of {', '.join(MEMORY_ORDERS)}")
    if kind in _NUMERIC:
        is_possible, expected = not dtype.is_bool, "numbers"
    elif kind in _BITWISE:
        is_possible, expected = not dtype.is_float, "integers or bools"
    else:
        is_possible, expected = kind is AtomicKind.XCHG or dtype.is_integer, "integers"
    if not is_possible:
        raise invalid_kind(name, f"the target has elements of {dtype.name}, expected {expected}")


def _update(
    kind: AtomicKind, target: Any, index: Any, value: Any, sem: str, expected: Any = None
) -> TileValue:
    name = f"hl.atomic_{kind.value}"
    tracer = current_tracer(name)
    if isinstance(target, TileValue):
        raise errors.AtomicOnDeviceTensor(function=name, target=target.value.name or "the operand")
    if isinstance(target, StackTensor):
        raise invalid_kind(name, "the target is a stack of tensors, expected one")
    ref = host_tensor(target, name)
    _check(name, kind, ref.type.dtype, sem)
    access = resolve_access(ref, index)
    check_tiles(ref, index)
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


def _atomic(kind: AtomicKind) -> AtomicRule:
    def rule(target: Any, index: Any, value: Any, sem: str = "relaxed") -> TileValue:
        return _update(kind, target, index, value, sem)

    rule.__name__ = f"atomic_{kind.value}"
    said = "Change the indexed elements by ``%s``, each in one step; gives the previous values."
    rule.__doc__ = said % kind.value
    if kind in (AtomicKind.MAX, AtomicKind.MIN):
        rule.__doc__ += "\n\nNaN stays, as in torch; on GPUs begin with numbers or infinities."
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
