"""Result element types exactly as eager torch has them.

Ask torch itself on tiny tensors, once per case.
"""

from __future__ import annotations

from functools import lru_cache, reduce
from typing import Any

import torch

from tilesmith.dtypes import F32, DType
from tilesmith.frontend.sessions import current_tracer
from tilesmith.frontend.values import TileValue
from tilesmith.interpreter.torch_dtypes import from_torch, to_torch

_Descriptor = tuple[Any, ...]


def _describe(operand: Any) -> _Descriptor:
    """What promotion depends on.

    Element type and whether it has dimensions; the kind of a number.
    """
    if not isinstance(operand, TileValue):
        return ("number", type(operand) if isinstance(operand, bool) else _number_kind(operand))
    if operand.is_weak:
        return ("number", float if operand.tile.dtype.is_float else int)
    return ("tensor", operand.tile.dtype, operand.tile.rank > 0)


def _number_kind(value: Any) -> type:
    return float if isinstance(value, float) else int


def _sample(descriptor: _Descriptor, device: str = "meta") -> Any:
    if descriptor[0] == "number":
        return descriptor[1](1)
    shape = (1,) if descriptor[2] else ()
    return torch.ones(shape, dtype=to_torch(descriptor[1]), device=device)


@lru_cache(maxsize=4096)
def _infer(name: str, descriptors: tuple[_Descriptor, ...]) -> DType:
    function = getattr(torch, name, None) or getattr(torch.nn.functional, name)
    try:
        # Meta tensors know every type, but for many functions load half of torch's compiler.
        return _ask(function, descriptors, "cpu")
    except RuntimeError:
        return _ask(function, descriptors, "meta")


def _ask(function: Any, descriptors: tuple[_Descriptor, ...], device: str) -> DType:
    samples = [_sample(descriptor, device) for descriptor in descriptors]
    if not any(isinstance(sample, torch.Tensor) for sample in samples):
        samples[0] = torch.tensor(samples[0], device=device)
    return from_torch(function(*samples).dtype)


def result_dtype(name: str, *operands: Any) -> DType:
    """The element type of ``torch.<name>(*operands)``."""
    with current_tracer(name).eager():
        return _infer(name, tuple(map(_describe, operands)))


@lru_cache(maxsize=4096)
def _promote(descriptors: tuple[_Descriptor, ...]) -> DType:
    return from_torch(reduce(torch.add, map(_sample, descriptors)).dtype)


def common_dtype(*operands: Any) -> DType:
    """The element type in which all operands meet."""
    with current_tracer("add").eager():
        return _promote(tuple(map(_describe, operands)))


def compute_dtype(dtype: DType) -> DType:
    """Where low-precision floats are computed: fp32."""
    return F32 if dtype.is_low_precision_float else dtype
