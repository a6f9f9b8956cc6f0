"""``hl.rand``, ``hl.randint``, ``hl.rand4x``: random numbers that depend on seed and position only.

The counter of an element is its row-major index in the space that the shape's axes run through, so
neither block sizes nor the order of loops change it. The bits are those of Triton's generator,
Philox 4x32-10: four words from a 128-bit counter and a 64-bit key, written in exact integer ops, so
that a counter gives the same words on every backend.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import torch

import tilesmith.exc as errors
from tilesmith.diagnostics.wording import kind_of
from tilesmith.dtypes import F32, I32, I64, U32, DType
from tilesmith.frontend.functions.creation import shape_of
from tilesmith.frontend.language.memory import load
from tilesmith.frontend.tracing.emission import (
    along,
    apply,
    arange,
    as_tile,
    broadcast_to,
    cast,
    full,
    reshape,
)
from tilesmith.frontend.tracing.tensors import TensorRef, reference_of_unknown
from tilesmith.frontend.tracing.tile import Tile
from tilesmith.frontend.tracing.tracer import INT32_LIMIT, current_tracer
from tilesmith.frontend.tracing.values import TileValue, size_of_dim
from tilesmith.ir.ops.indexing import Full
from tilesmith.ir.types import ONE, Dim

Word = TileValue | int
"""32 bits: a tile or scalar of u32, or a constant."""
Key = tuple[Word, Word]
Counter = tuple[Word, Word, Word, Word]

WORD_MASK = 0xFFFFFFFF
_ROUNDS = 10
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
"""Constants of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011)."""
_ON_CONSTANTS: dict[str, Callable[[int, int], int]] = {
    "add": operator.add,
    "mul": operator.mul,
    "mulhi": lambda left, right: left * right >> 32,
    "xor": operator.xor,
}


def philox(counter: Counter, key: Key) -> Counter:
    """The four words of a counter."""
    words = counter
    for number in range(_ROUNDS):
        steps = ((number * step) & WORD_MASK for step in _KEY_STEPS)
        low, high = (_combine("add", word, step) for word, step in zip(key, steps))
        words = _round(words, (low, high))
    return words


def _round(words: Counter, key: Key) -> Counter:
    first, second, third, fourth = words
    return (
        _xor(_combine("mulhi", third, _MULTIPLIERS[1]), second, key[0]),
        _combine("mul", third, _MULTIPLIERS[1]),
        _xor(_combine("mulhi", first, _MULTIPLIERS[0]), fourth, key[1]),
        _combine("mul", first, _MULTIPLIERS[0]),
    )


def _xor(*words: Word) -> Word:
    # Keys and constants are scalars: they meet before they are spread over a tile.
    first, second, third = sorted(words, key=_rank)
    return _combine("xor", third, _combine("xor", second, first))


def _rank(word: Word) -> int:
    return -1 if isinstance(word, int) else word.tile.rank


def _combine(fn: str, left: Word, right: Word) -> Word:
    """A commutative function of two words, computed here as far as it can be."""
    if isinstance(left, int):
        left, right = right, left
    if isinstance(left, int):
        assert isinstance(right, int)
        return _ON_CONSTANTS[fn](left, right) & WORD_MASK
    if isinstance(right, int):
        if right == 0:
            return 0 if fn in ("mul", "mulhi") else left
        right = full(right, U32, left.tile.shape)
    return apply(fn, left, right, dtype=U32)


_SCALE = (1 - 2.0**-24) * 2.0**-31
"""Brings 31 bits into [0, 1): the largest of them rounds to 2^31, which must not become 1."""


def rand(shape: Any, seed: Any, device: Any = None, offsets: Any = None) -> TileValue:
    """Uniform float32 in [0, 1), a function of the seed and of each element's position.

    Example:
        ``keep = hl.rand([t, u], seed=seed) > p``
    """
    return uniform(_words("hl.rand", shape, seed, offsets)[0])


def randint(shape: Any, low: Any, high: Any, seed: Any, device: Any = None) -> TileValue:
    """Uniform int32 in [low, high), a function of the seed and of each element's position.

    Example:
        ``pick = hl.randint([t], 0, 10, seed=seed)``
    """
    if isinstance(low, int) and isinstance(high, int) and low >= high:
        raise errors.InvalidArgumentValue(
            function="hl.randint", problem=f"low={low} is not below high={high}"
        )
    return whole_numbers(_words("hl.randint", shape, seed, None)[0], low, high)


def whole_numbers(word: TileValue, low: Any, high: Any) -> TileValue:
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
    return tuple(map(uniform, _words("hl.rand4x", None, seed, offsets)))


def _words(function: str, shape: Any, seed: Any, offsets: Any) -> tuple[TileValue, ...]:
    """The four random words of every element."""
    current_tracer(function)
    key = key_of(function, seed)
    if offsets is None:
        return random_words(function, shape, key)
    position = _integer(function, "offsets", offsets)
    dims = position.tile.shape if shape is None else shape_of(shape, function)
    words = philox(_counter(position), key)
    return tuple(broadcast_to(as_tile(word, U32), dims) for word in words)


def random_words(function: str, shape: Any, key: Key, series: int = 0) -> tuple[TileValue, ...]:
    """The four words of every element by its position; other ones in each series."""
    dims = shape_of(shape, function)
    position = _position([_axis(function, size, dim) for size, dim in zip(shape, dims)])
    low, high, _, _ = _counter(position)
    words = philox((low, high, series, 0), key)
    return tuple(broadcast_to(as_tile(word, U32), dims) for word in words)


def uniform(word: TileValue) -> TileValue:
    """31 of the 32 bits, folded at the sign, as a fraction."""
    folded = cast(apply("xor", word, _sign(word)), I32)
    return apply("mul", cast(folded, F32), _SCALE)


def _sign(word: TileValue) -> TileValue:
    """All ones where the word is a negative int32, else 0."""
    return cast(apply("shr", cast(word, I32), 31), U32)


def _integer(function: str, name: str, value: Any) -> TileValue:
    tile = value if isinstance(value, (int, TileValue)) else None
    if tile is None or not as_tile(tile).tile.dtype.is_integer:
        raise errors.InvalidArgumentKind(
            function=function, problem=f"{name} is {kind_of(value)}, expected integers"
        )
    return as_tile(tile)


def key_of(function: str, seed: Any) -> Key:
    """The seed as 64 bits; of a tensor, its one element."""
    if isinstance(seed, int):
        return seed & WORD_MASK, (seed >> 32) & WORD_MASK
    if isinstance(seed, torch.Tensor):
        seed = reference_of_unknown(seed)
    if isinstance(seed, TensorRef):
        seed = load(seed, (0,) * seed.ndim) if seed.host_tensor.numel() == 1 else None
    value = _integer(function, "the seed", seed)
    if not all(dim.is_one for dim in value.tile.shape):
        raise errors.InvalidArgumentKind(
            function=function, problem=f"the seed is a tensor {value.tile}"
        )
    low, high, _, _ = _counter(cast(reshape(value, ()), I64))
    return low, high


def _counter(position: TileValue) -> Counter:
    low = cast(position, U32)
    if position.tile.dtype.bits <= 32:
        return low, 0, 0, 0
    return low, cast(apply("shr", position, 32), U32), 0, 0


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
        raise errors.InvalidArgumentValue(
            function=function, problem=f"no loop steps over the axis {dim} here"
        )
    return _Axis(arange(dim), size_of_dim(dim))


def _position(axes: list[_Axis]) -> TileValue:
    """The row-major index of every lane, in 64 bits unless 32 are known to do."""
    if not axes:
        return full(0, I32)
    dtype = _position_dtype(axes)
    position: TileValue | None = None
    for place, axis in enumerate(axes):
        index = along(axis.index, place, len(axes))
        if position is not None:
            size = axis.size if axis.known_size is None else axis.known_size
            index = apply("add", apply("mul", position, size, dtype=dtype), index, dtype=dtype)
        position = index
    assert position is not None
    return position


def _position_dtype(axes: list[_Axis]) -> DType:
    sizes = [axis.known_size for axis in axes]
    known = [size for size in sizes if size is not None]
    is_small = len(known) == len(sizes) and prod(known) <= INT32_LIMIT
    return I32 if is_small else I64
