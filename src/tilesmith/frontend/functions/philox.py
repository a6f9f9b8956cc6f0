"""Philox 4x32-10: four words from a 128-bit counter and a 64-bit key."""

from __future__ import annotations

import operator
from collections.abc import Callable

from tilesmith.dtypes import U32
from tilesmith.frontend.tracing.emission import apply, as_tile, full, select
from tilesmith.frontend.tracing.values import TileValue

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
    return _round(_after_rounds(counter, key), _key_of_round(key, _ROUNDS - 1))


def one_word(counter: Counter, key: Key, place: TileValue) -> TileValue:
    """The word of a counter that ``place`` says, 0 to 3: the last round is half as long."""
    first, second, third, fourth = map(as_tile, _after_rounds(counter, key))
    low, high = _key_of_round(key, _ROUNDS - 1)
    is_before = apply("lt", place, 2)
    x = select(is_before, third, first)
    other = select(is_before, _combine("xor", second, low), _combine("xor", fourth, high))
    factors = (full(factor, U32, x.tile.shape) for factor in reversed(_MULTIPLIERS))
    factor = select(is_before, *factors)
    upper, lower = apply("mulhi", x, factor, dtype=U32), apply("mul", x, factor, dtype=U32)
    is_even = apply("eq", apply("and", place, 1), 0)
    return select(is_even, apply("xor", upper, other, dtype=U32), lower)


def _after_rounds(counter: Counter, key: Key) -> Counter:
    """The words before the last round."""
    words = counter
    for number in range(_ROUNDS - 1):
        words = _round(words, _key_of_round(key, number))
    return words


def _key_of_round(key: Key, number: int) -> Key:
    steps = ((number * step) & WORD_MASK for step in _KEY_STEPS)
    low, high = (_combine("add", word, step) for word, step in zip(key, steps))
    return low, high


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
    first, second, third = sorted(words, key=lambda w: -1 if isinstance(w, int) else w.tile.rank)
    return _combine("xor", third, _combine("xor", second, first))


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
