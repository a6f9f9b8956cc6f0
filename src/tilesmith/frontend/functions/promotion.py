"""Element types: of results exactly as eager torch has them, and of what is computed on the way.

Torch itself is asked on tiny tensors, once per case. A composition is a function of tiles of one
float type: wrappers bring operands into that type and the result, rounded once, into eager's.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, reduce
from typing import Any

import torch

from tilesmith.dtypes import F32, DType
from tilesmith.frontend.tracing.emission import Rule, apply, cast, strong
from tilesmith.frontend.tracing.tracer import current_tracer
from tilesmith.frontend.tracing.values import TileValue
from tilesmith.interpreter.torch_dtypes import from_torch, to_torch

_Descriptor = tuple[Any, ...]


def _describe(operand: Any) -> _Descriptor:
    """What promotion depends on.

    Element type and whether it has dimensions; the kind of a number.
    """
    if not isinstance(operand, TileValue):
        kinds = (kind for kind in (bool, float) if isinstance(operand, kind))
        return ("number", next(kinds, int))
    if operand.is_weak:
        return ("number", float if operand.tile.dtype.is_float else int)
    return ("tensor", operand.tile.dtype, operand.tile.rank > 0)


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


Composition = Callable[..., TileValue]


def in_wide_type(function: Composition) -> Rule:
    """The type of the first operand, fp32 for half types."""

    def rule(input: TileValue, *args: Any, inplace: bool = False, **kwargs: Any) -> TileValue:
        wide = strong(input, input.tile.dtype.computed)
        return cast(function(wide, *args, **kwargs), input.tile.dtype)

    return rule


def in_common_type(function: Composition) -> Rule:
    """All operands in the type they promote to, fp32 for half types."""

    def rule(*operands: Any, **kwargs: Any) -> TileValue:
        dtype = common_dtype(*operands)
        wide = [strong(operand, dtype.computed) for operand in operands]
        return cast(function(*wide, **kwargs), dtype)

    return rule


def in_float_type(function: Composition, num_operands: int = 1) -> Rule:
    """The first operands in the float type they promote to (integers: fp32), wide for half types.

    Further arguments are passed on as they are.
    """

    def rule(*args: Any, **kwargs: Any) -> TileValue:
        dtype, wide = widened(*args[:num_operands])
        return cast(function(*wide, *args[num_operands:], **kwargs), dtype)

    return rule


def float_dtype(*operands: Any) -> DType:
    """What operands promote to, integers and bools counting as fp32."""
    dtype = common_dtype(*operands)
    return dtype if dtype.is_float else F32


def widened(*operands: Any) -> tuple[DType, list[TileValue]]:
    """The float type of a result, and its operands in the type that it is computed in."""
    dtype = float_dtype(*operands)
    return dtype, [strong(operand, dtype.computed) for operand in operands]


def polynomial(x: TileValue, coefficients: tuple[float, ...]) -> TileValue:
    """Horner's rule, the coefficient of the highest power first."""
    first, *others = coefficients
    result: Any = first
    for coefficient in others:
        result = apply("fma", x, result, coefficient)
    return result
