"""Philox 4x32-10 in NumPy, and uniform numbers made of its words as Triton makes them."""

from __future__ import annotations

import numpy as np
import torch

WORD = 0xFFFFFFFF
Words = tuple[np.ndarray, ...]


def philox(counter: tuple[np.ndarray | int, ...], key: tuple[int, int]) -> Words:
    """The four words of each counter, as uint64 below 2^32."""
    c = [np.asarray(word, dtype=np.uint64) for word in counter]
    k = list(key)
    for _ in range(10):
        products = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        (high0, low0), (high1, low1) = (
            (product >> np.uint64(32), product & np.uint64(WORD)) for product in products
        )
        c = [high1 ^ c[1] ^ np.uint64(k[0]), low1, high0 ^ c[3] ^ np.uint64(k[1]), low0]
        k = [(k[0] + 0x9E3779B9) & WORD, (k[1] + 0xBB67AE85) & WORD]
    return tuple(c)


def words_at(offsets: np.ndarray, seed: int, series: int = 0) -> Words:
    """The words of 64-bit offsets."""
    wide = np.asarray(offsets).astype(np.int64).view(np.uint64)
    counter = (wide & np.uint64(WORD), wide >> np.uint64(32), series, 0)
    return philox(counter, (seed & WORD, (seed >> 32) & WORD))


def word_at(positions: np.ndarray, seed: int, series: int = 0) -> np.ndarray:
    """The word of each position: four neighbours have those of one counter."""
    words = np.stack(words_at(positions >> 2, seed, series))
    return np.take_along_axis(words, positions[None] & 3, 0)[0]


def uniform(word: np.ndarray) -> torch.Tensor:
    """One word of each element as a float32 in [0, 1)."""
    signed = word.astype(np.uint32).view(np.int32)
    folded = np.where(signed < 0, -signed - 1, signed).astype(np.float32)
    return torch.from_numpy(folded * np.float32(4.6566127342e-10))


def rand(shape: tuple[int, ...], seed: int, series: int = 0) -> torch.Tensor:
    """What ``hl.rand`` over a whole index space gives."""
    return uniform(word_at(np.arange(np.prod(shape)).reshape(shape), seed, series))


def randint(shape: tuple[int, ...], low: int, high: int, seed: int) -> torch.Tensor:
    """What ``hl.randint`` over a whole index space gives."""
    word = word_at(np.arange(np.prod(shape)).reshape(shape), seed)
    signed = word.astype(np.uint32).view(np.int32).astype(np.int64)
    return torch.from_numpy(low + np.abs(signed) % (high - low)).to(torch.int32)
