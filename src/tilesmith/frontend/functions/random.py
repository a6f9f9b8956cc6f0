"""Random numbers that depend on seed and position only: ``hl.rand`` and torch's own functions.

Position is the row-major index in the space that the shape's axes run through, so neither block
sizes nor the order of loops change a number. The generator is Philox 4x32-10: four words from a
128-bit counter and a 64-bit key, written in exact integer ops, so that a counter gives the same
words on every backend. Where one word is needed, four neighbours share a counter. For torch's
functions each launch draws the seed from torch's generator on the CPU, so ``torch.manual_seed``
repeats it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import torch

from tilesmith.diagnostics.wording import kind_of
from tilesmith.dtypes import F32, I32, I64, U32, DType
from tilesmith.frontend.functions.creation import shape_of
from tilesmith.frontend.functions.philox import WORD_MASK, Key, one_word, philox
from tilesmith.frontend.language.memory import load
from tilesmith.frontend.refusals import invalid_kind, invalid_value, unsupported_argument
from tilesmith.frontend.tracing.emission import (
    Rule,
    along,
    apply,
    arange,
    as_tile,
    broadcast_to,
    cast,
    full,
    one_by_one,
    reshape,
    select,
)
from tilesmith.frontend.tracing.tensors import TensorRef, reference_of_unknown
from tilesmith.frontend.tracing.tile import Tile
from tilesmith.frontend.tracing.tracer import INT32_LIMIT, current_tracer
from tilesmith.frontend.tracing.values import TileValue, size_of_dim
from tilesmith.interpreter.torch_dtypes import from_torch
from tilesmith.ir.ops.indexing import Full
from tilesmith.ir.types import ONE, Dim, scalar

_SCALE = (1 - 2.0**-24) * 2.0**-31
"""Brings 31 bits into [0, 1): the largest of them rounds to 2^31, which must not become 1."""


def rand(shape: Any, seed: Any, device: Any = None, offsets: Any = None) -> TileValue:
    """Uniform float32 in [0, 1), a function of the seed and of each element's position.

    ``offsets`` are positions of your own; with an empty shape the result has theirs.

    Example:
        ``keep = hl.rand([t, u], seed=seed) > p``
    """
    return _uniform(_word("hl.rand", shape, seed, offsets))


def randint(shape: Any, low: Any, high: Any, seed: Any, device: Any = None) -> TileValue:
    """Uniform int32 in [low, high), a function of the seed and of each element's position.

    Example:
        ``pick = hl.randint([t], 0, 10, seed=seed)``
    """
    _check_bounds("hl.randint", low, high)
    return _whole_numbers(_word("hl.randint", shape, seed, None), low, high)


def _check_bounds(function: str, low: Any, high: Any) -> None:
    if isinstance(low, int) and isinstance(high, int) and low >= high:
        raise invalid_value(function, f"low={low} is not below high={high}")


def _whole_numbers(word: TileValue, low: Any, high: Any) -> TileValue:
    """Random words as int32 in [low, high)."""
    magnitude = apply("sub", apply("xor", word, _sign(word)), _sign(word))
    first, end = (as_tile(bound, I64) for bound in (low, high))
    span = cast(apply("sub", end, first), U32)
    return apply("add", cast(apply("mod", magnitude, span), I32), cast(first, I32))


def rand4x(seed: Any, offsets: Any, device: Any = None) -> tuple[TileValue, ...]:
    """Four independent uniform float32 tensors in [0, 1), shaped like the integers ``offsets``.

    Example:
        ``a, b, c, d = hl.rand4x(seed, t.index)``
    """
    current_tracer("hl.rand4x")
    key, counter = _key_of("hl.rand4x", seed), _integer("hl.rand4x", "offsets", offsets)
    return tuple(map(_uniform, _words_at(counter, key, 0)))


def _word(function: str, shape: Any, seed: Any, offsets: Any) -> TileValue:
    """One random word of every element."""
    current_tracer(function)
    key = _key_of(function, seed)
    if offsets is None:
        return _random_word(function, shape, key)
    position = _integer(function, "offsets", offsets)
    # An empty shape says no more than that the offsets have one.
    dims = shape_of(shape, function) or position.tile.shape
    return broadcast_to(_word_at(position, key, 0), dims)


def _random_word(function: str, shape: Any, key: Key, series: int = 0) -> TileValue:
    """The word of every element by its position; another one in each series."""
    word = _word_at(_position(function, shape), key, series)
    return broadcast_to(word, shape_of(shape, function))


def _word_at(position: TileValue, key: Key, series: int) -> TileValue:
    """One of four words: four neighbours share a counter.

    Lanes of a thread that share a counter share the computation: compilers see that bits of the
    position that are shifted out do not count.
    """
    counter = (*_halves(apply("shr", position, 2)), series, 0)
    return one_word(counter, key, apply("and", position, 3))


def _words_at(counter: TileValue, key: Key, series: int) -> tuple[TileValue, ...]:
    """The four words of every counter."""
    words = philox((*_halves(counter), series, 0), key)
    return tuple(broadcast_to(as_tile(word, U32), counter.tile.shape) for word in words)


def _uniform(word: TileValue) -> TileValue:
    """31 of the 32 bits, folded at the sign, as a fraction."""
    folded = cast(apply("xor", word, _sign(word)), I32)
    return apply("mul", cast(folded, F32), _SCALE)


def _sign(word: TileValue) -> TileValue:
    """All ones where the word is a negative int32, else 0."""
    return cast(apply("shr", cast(word, I32), 31), U32)


def _integer(function: str, name: str, value: Any) -> TileValue:
    tile = value if isinstance(value, (int, TileValue)) else None
    if tile is None or not as_tile(tile).tile.dtype.is_integer:
        raise invalid_kind(function, f"{name} is {kind_of(value)}, expected integers")
    return as_tile(tile)


def _key_of(function: str, seed: Any) -> Key:
    """The seed as 64 bits; of a tensor, its one element."""
    if isinstance(seed, int):
        return seed & WORD_MASK, (seed >> 32) & WORD_MASK
    if isinstance(seed, torch.Tensor):
        seed = reference_of_unknown(seed)
    if isinstance(seed, TensorRef):
        seed = load(seed, (0,) * seed.ndim) if seed.host_tensor.numel() == 1 else None
    value = _integer(function, "the seed", seed)
    if not all(dim.is_one for dim in value.tile.shape):
        raise invalid_kind(function, f"the seed is a tensor {value.tile}")
    return _halves(cast(reshape(value, ()), I64))


def _halves(number: TileValue) -> Key:
    """The low and the high word of an integer."""
    low = cast(number, U32)
    return low, cast(apply("shr", number, 32), U32) if number.tile.dtype.bits > 32 else 0


@dataclass(frozen=True)
class _Axis:
    """Where the lanes of one axis stand in the whole range, and how long that is."""

    index: TileValue
    size: Any

    @property
    def known_size(self) -> int | None:
        """The size if it is known now."""
        if isinstance(self.size, int):
            return self.size
        op = current_tracer("hl.rand").builder.definition_of(self.size.value)
        return int(op.value) if isinstance(op, Full) else None


def _axis(function: str, size: Any, dim: Dim) -> _Axis:
    tracer = current_tracer(function)
    tile = size if isinstance(size, Tile) else tracer.find_tile(dim.symbol)
    if tile is not None:
        return _Axis(tile.index, tile.range_end)
    if dim.is_one:
        return _Axis(full(0, I32, (ONE,)), 1)
    if dim.constant is None and dim.symbol not in tracer.sizes:
        raise invalid_value(function, f"no loop steps over the axis {dim} here")
    return _Axis(arange(dim), size_of_dim(dim))


def _position(function: str, shape: Any) -> TileValue:
    """The row-major index of every lane, in 64 bits unless 32 are known to do."""
    sizes = shape if isinstance(shape, (list, tuple)) else (shape,)
    axes = [_axis(function, size, dim) for size, dim in zip(sizes, shape_of(shape, function))]
    if not axes:
        return full(0, I32)
    known = [axis.known_size for axis in axes]
    is_small = None not in known and prod(size or 0 for size in known) <= INT32_LIMIT
    dtype = I32 if is_small else I64
    position = along(axes[0].index, 0, len(axes))
    for place, axis in enumerate(axes[1:], 1):
        index = along(axis.index, place, len(axes))
        size = axis.size if axis.known_size is None else axis.known_size
        position = apply("add", apply("mul", position, size, dtype=dtype), index, dtype=dtype)
    return position


SEED_OF_CALL = f"torch.randint({2**63 - 1}, (), device='cpu').item()"
"""Evaluated at each launch, as the source of any parameter is."""
_TWO_PI = 6.283185307179586
_SMALLEST = 2.0**-24
"""In place of 0, whose logarithm is infinite."""


def _seed_of_call(function: str) -> tuple[Key, int]:
    """The key and the series of one call: other numbers at every call."""
    tracer = current_tracer(function)
    seed = TileValue(tracer.parameter("random_seed", SEED_OF_CALL, scalar(I64)))
    tracer.random_calls += 1
    return _key_of(function, seed), tracer.random_calls


def _word_of_call(function: str, shape: Any) -> TileValue:
    return _random_word(function, tuple(shape), *_seed_of_call(function))


def _uniform_of_call(function: str, shape: Any) -> TileValue:
    return _uniform(_word_of_call(function, shape))


def _normal_of_call(function: str, shape: Any) -> TileValue:
    """Two uniform numbers as the length and the angle of a point in the plane."""
    # Box and Muller's transform.
    words = _words_at(_position(function, shape), *_seed_of_call(function))
    length = apply("maximum", _uniform(words[0]), _SMALLEST)
    angle = apply("mul", _uniform(words[1]), _TWO_PI)
    radius = apply("sqrt", apply("mul", apply("log", length), -2.0))
    return apply("mul", radius, apply("cos", angle))


def _float_dtype(function: str, dtype: torch.dtype | None, default: DType) -> DType:
    found = default if dtype is None else from_torch(dtype)
    if not found.is_float:
        raise invalid_kind(function, f"dtype {found.name} has no fractions")
    return found


def _rand(
    *size: Any,
    dtype: torch.dtype | None = None,
    generator: Any = None,
    name: str = "torch.rand",
    make: Callable[[str, Any], TileValue] = _uniform_of_call,
    **_: Any,
) -> TileValue:
    _reject_generator(name, generator)
    element = _float_dtype(name, dtype, F32)
    return cast(make(name, one_by_one(size)), element)


def _rand_like(x: Any, *, dtype: torch.dtype | None = None, rule: Rule, **_: Any) -> TileValue:
    element = x.dtype if dtype is None else dtype
    if isinstance(x, torch.Tensor):
        x = reference_of_unknown(x)
    if not isinstance(x, (TileValue, TensorRef)):
        raise invalid_kind("torch.rand_like", f"{kind_of(x)} has no shape")
    return rule(x.shape, dtype=element)


def _reject_generator(name: str, generator: Any) -> None:
    if generator is not None:
        raise unsupported_argument(name, "generator=")


def _torch_randint(*args: Any, dtype: torch.dtype | None = None, **others: Any) -> TileValue:
    """``torch.randint(low=0, high, size)``, in int64 unless another type is asked for."""
    name = "torch.randint"
    _reject_generator(name, others.get("generator"))
    bounds = args if isinstance(args[-1], (list, tuple)) else (*args, others.get("size", ()))
    low, high = (0, bounds[0]) if len(bounds) == 2 else bounds[:2]
    _check_bounds(name, low, high)
    word = _word_of_call(name, bounds[-1])
    return cast(_whole_numbers(word, low, high), I64 if dtype is None else from_torch(dtype))


def _bernoulli(x: TileValue, p: Any = None, *, generator: Any = None) -> TileValue:
    """``torch.bernoulli``: 1 with the probability given by each element, or by ``p``."""
    _reject_generator("torch.bernoulli", generator)
    chance = cast(as_tile(x), F32) if p is None else p
    drawn = apply("lt", _uniform_of_call("torch.bernoulli", x.shape), chance, dtype=F32)
    return cast(drawn, x.tile.dtype)


def _dropout(x: TileValue, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """``F.dropout``: zeros with probability ``p``, all else divided by what is kept on average."""
    if not isinstance(p, (int, float)) or not 0 <= p <= 1:
        raise invalid_value("F.dropout", f"p={p!r} is no probability")
    if not training or p == 0:
        return x
    dtype = x.tile.dtype
    zeros = full(0, dtype, x.tile.shape)
    if p == 1:
        return zeros
    is_kept = apply("ge", _uniform_of_call("F.dropout", x.shape), float(p), dtype=F32)
    kept = cast(apply("mul", cast(x, F32), 1 / (1 - p)), dtype)
    return select(is_kept, kept, zeros)


_randn = partial(_rand, name="torch.randn", make=_normal_of_call)
RANDOM_FACTORIES: dict[str, Rule] = {"rand": _rand, "randn": _randn, "randint": _torch_randint}
RANDOM: dict[str, Rule] = {
    **RANDOM_FACTORIES,
    "rand_like": partial(_rand_like, rule=partial(_rand, name="torch.rand_like")),
    "randn_like": partial(_rand_like, rule=partial(_randn, name="torch.randn_like")),
    "bernoulli": _bernoulli,
    "dropout": _dropout,
}
