"""torch's random functions in device code: ``torch.rand`` and its relatives, ``F.dropout``.

Each launch draws one number from torch's generator on the CPU, so ``torch.manual_seed`` repeats it.
Each call in the source counts by itself, so no two of them give the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import tilesmith.exc as errors
from tilesmith.diagnostics.wording import kind_of
from tilesmith.dtypes import F32, I64, DType
from tilesmith.frontend.functions.random import key_of, random_words, uniform, whole_numbers
from tilesmith.frontend.tracing.emission import Rule, apply, as_tile, cast, full, one_by_one
from tilesmith.frontend.tracing.tensors import TensorRef, reference_of_unknown
from tilesmith.frontend.tracing.tracer import current_tracer
from tilesmith.frontend.tracing.values import TileValue
from tilesmith.interpreter.torch_dtypes import from_torch
from tilesmith.ir.types import scalar

_SEED = f"torch.randint({2**63 - 1}, (), device='cpu').item()"
"""Evaluated at each launch, as the source of any parameter is."""
_TWO_PI = 6.283185307179586
_SMALLEST = 2.0**-24
"""In place of 0, whose logarithm is infinite."""


def _words(function: str, shape: Any) -> tuple[TileValue, ...]:
    """The four random words of every element, other ones at every call."""
    tracer = current_tracer(function)
    seed = TileValue(tracer.parameter("random_seed", _SEED, scalar(I64)))
    tracer.random_calls += 1
    return random_words(function, tuple(shape), key_of(function, seed), tracer.random_calls)


def _normal(words: tuple[TileValue, ...]) -> TileValue:
    """Two uniform numbers as the length and the angle of a point in the plane."""
    # Box and Muller's transform.
    length = apply("maximum", uniform(words[0]), _SMALLEST)
    angle = apply("mul", uniform(words[1]), _TWO_PI)
    radius = apply("sqrt", apply("mul", apply("log", length), -2.0))
    return apply("mul", radius, apply("cos", angle))


def _uniform(words: tuple[TileValue, ...]) -> TileValue:
    return uniform(words[0])


def _float_dtype(function: str, dtype: torch.dtype | None, default: DType) -> DType:
    found = default if dtype is None else from_torch(dtype)
    if not found.is_float:
        raise errors.InvalidArgumentKind(
            function=function, problem=f"dtype {found.name} has no fractions"
        )
    return found


def _factory(name: str, make: Callable[[tuple[TileValue, ...]], TileValue]) -> Rule:
    def rule(
        *size: Any, dtype: torch.dtype | None = None, generator: Any = None, **_: Any
    ) -> TileValue:
        _reject_generator(name, generator)
        element = _float_dtype(name, dtype, F32)
        return cast(make(_words(name, one_by_one(size))), element)

    return rule


def _like(name: str, make: Callable[[tuple[TileValue, ...]], TileValue]) -> Rule:
    def rule(x: Any, *, dtype: torch.dtype | None = None, **_: Any) -> TileValue:
        element = _float_dtype(name, dtype, from_torch(x.dtype))
        return cast(make(_words(name, _shape(x))), element)

    return rule


def _shape(x: Any) -> Any:
    if isinstance(x, torch.Tensor):
        x = reference_of_unknown(x)
    if not isinstance(x, (TileValue, TensorRef)):
        raise errors.InvalidArgumentKind(
            function="torch.rand_like", problem=f"{kind_of(x)} has no shape"
        )
    return x.shape


def _reject_generator(name: str, generator: Any) -> None:
    if generator is not None:
        raise errors.UnsupportedTorchArgument(name=name, argument="generator=")


def randint(*args: Any, dtype: torch.dtype | None = None, **others: Any) -> TileValue:
    """``torch.randint(low=0, high, size)``, in int64 unless another type is asked for."""
    name = "torch.randint"
    _reject_generator(name, others.get("generator"))
    bounds = args if isinstance(args[-1], (list, tuple)) else (*args, others.get("size", ()))
    low, high = (0, bounds[0]) if len(bounds) == 2 else bounds[:2]
    if isinstance(low, int) and isinstance(high, int) and low >= high:
        raise errors.InvalidArgumentValue(
            function=name, problem=f"low={low} is not below high={high}"
        )
    words = _words(name, bounds[-1])
    return cast(whole_numbers(words[0], low, high), I64 if dtype is None else from_torch(dtype))


def bernoulli(x: TileValue, p: Any = None, *, generator: Any = None) -> TileValue:
    """``torch.bernoulli``: 1 with the probability given by each element, or by ``p``."""
    _reject_generator("torch.bernoulli", generator)
    chance = cast(as_tile(x), F32) if p is None else p
    drawn = apply("lt", uniform(_words("torch.bernoulli", x.shape)[0]), chance, dtype=F32)
    return cast(drawn, x.tile.dtype)


def dropout(x: TileValue, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """``F.dropout``: zeros with probability ``p``, all else divided by what is kept on average."""
    if not isinstance(p, (int, float)) or not 0 <= p <= 1:
        raise errors.InvalidArgumentValue(
            function="F.dropout", problem=f"p={p!r} is no probability"
        )
    if not training or p == 0:
        return x
    dtype = x.tile.dtype
    zeros = full(0, dtype, x.tile.shape)
    if p == 1:
        return zeros
    is_kept = apply("ge", uniform(_words("F.dropout", x.shape)[0]), float(p), dtype=F32)
    kept = cast(apply("mul", cast(x, F32), 1 / (1 - p)), dtype)
    return apply("where", is_kept, kept, zeros, dtype=dtype)


RANDOM_FACTORIES: dict[str, Rule] = {
    "rand": _factory("torch.rand", _uniform),
    "randn": _factory("torch.randn", _normal),
    "randint": randint,
}
RANDOM: dict[str, Rule] = {
    **RANDOM_FACTORIES,
    "rand_like": _like("torch.rand_like", _uniform),
    "randn_like": _like("torch.randn_like", _normal),
    "bernoulli": bernoulli,
    "dropout": dropout,
}
