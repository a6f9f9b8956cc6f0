"""``hl.stacktensor_like``: tensors elsewhere in memory, found by their addresses."""

from __future__ import annotations

from typing import Any

import torch

from tilesmith.diagnostics import errors
from tilesmith.diagnostics.wording import kind_of
from tilesmith.dtypes import U64
from tilesmith.frontend.emission import expand_dims
from tilesmith.frontend.indexing import Access, resolve_access
from tilesmith.frontend.sessions import current_tracer, find_tracer
from tilesmith.frontend.tensors import TensorRef, reference_of_unknown
from tilesmith.frontend.tracer import locate
from tilesmith.frontend.values import TileValue, TorchOperand, dispatch
from tilesmith.ir.values import Value


class StackTensor(TorchOperand):
    """Tensors that look like ``example``, one at each address of ``pointers``."""

    user_name = "a stack of tensors"

    def __init__(self, example: TensorRef, pointers: TileValue) -> None:
        self.example = example
        self.pointers = pointers

    @property
    def dtype(self) -> torch.dtype:
        """The element type."""
        return self.example.dtype

    @property
    def shape(self) -> tuple[Any, ...]:
        """Sizes of the pointers, then of the example."""
        return (*self.pointers.shape, *self.example.shape)

    def resolve(self, index: Any) -> tuple[Access, Value]:
        """Aligned indices, the accessed shape, and the base address of every lane."""
        inner = resolve_access(self.example, index)
        lead, rank = self.pointers.tile.rank, len(inner.shape)
        indices = [
            expand_dims(TileValue(value), tuple(range(lead))).value if value.tile.rank else value
            for value in inner.indices
        ]
        bases = expand_dims(self.pointers, tuple(range(lead, lead + rank)))
        shape = (*self.pointers.tile.shape, *inner.shape)
        return Access(tuple(indices), shape), bases.value

    def __getitem__(self, index: Any) -> Any:
        return dispatch("load", (self, index), {})

    def __setitem__(self, index: Any, value: Any) -> None:
        dispatch("store", (self, index, value), {})

    def __repr__(self) -> str:
        return f"<stack of tensors like {self.example.source}>"


def stacktensor_like(example: Any, ptrs: Any) -> StackTensor:
    """Tensors of the dtype, shape and strides of ``example`` at the addresses ``ptrs``.

    A load has the shape of ``ptrs``, then that of the index.

    Example:
        ``out[t, u] = hl.stacktensor_like(like, addresses[t])[u]``
    """
    if find_tracer() is None:
        _reject_host()
    if isinstance(example, TileValue):
        raise errors.StackTensorExampleOnDevice(loc=locate())
    example, ptrs = _reference(example), _reference(ptrs)
    if not isinstance(example, TensorRef):
        raise errors.InvalidArgumentKind(
            function="hl.stacktensor_like",
            problem=f"the example is {kind_of(example)}, expected a host tensor",
            loc=locate(),
        )
    if isinstance(ptrs, TensorRef):
        raise errors.StackTensorDevPtrOnHost(tensor=ptrs.source, loc=locate())
    if not isinstance(ptrs, TileValue) or ptrs.tile.dtype != U64:
        found = ptrs.dtype if isinstance(ptrs, TileValue) else kind_of(ptrs)
        raise errors.StackTensorDevPtrDtype(dtype=str(found), loc=locate())
    return StackTensor(example, ptrs)


def _reject_host() -> None:
    try:
        current_tracer("hl.stacktensor_like")
    except errors.DeviceAPIOnHost:
        raise errors.StackTensorcOnHost(loc=locate()) from None


def _reference(tensor: Any) -> Any:
    return reference_of_unknown(tensor) if isinstance(tensor, torch.Tensor) else tensor
