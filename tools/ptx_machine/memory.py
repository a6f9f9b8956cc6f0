"""Memory that lanes load from and store to: of the host, of each program and of each thread."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from tools.ptx_machine.kinds import WORDS, Lanes
from tools.ptx_machine.text import PtxError


class Memory:
    """Pieces of memory at addresses; everything outside of them is an error."""

    def __init__(self, pieces: Iterable[tuple[int, int]], name: str) -> None:
        self._name = name
        found = _joined(sorted({(start, start + size) for start, size in pieces if size}))
        self._starts = np.array([start for start, _ in found], np.int64)
        self._ends = np.array([end for _, end in found], np.int64)
        self._low = int(self._starts[0]) & -16 if found else 0
        high = int(self._ends[-1]) + 15 & -16 if found else 16
        self._octets: Any = None
        self._span = high - self._low

    def _bytes(self) -> Lanes:
        if self._octets is None:
            area = (ctypes.c_uint8 * self._span).from_address(self._low)
            self._octets = np.ctypeslib.as_array(area)
        return self._octets

    def _indices(self, addresses: Lanes, bits: int) -> Lanes:
        """Places in words of so many bits."""
        size, places = bits // 8, addresses.astype(np.int64)
        if np.any(places % size):
            raise PtxError(f"misaligned address in {self._name} memory: {hex(_odd(places, size))}")
        piece = np.searchsorted(self._starts, places, "right") - 1
        inside = (piece >= 0) & (places + size <= self._ends[np.maximum(piece, 0)])
        if not inside.all():
            raise PtxError(f"{self._outside(places[~inside])}")
        return (places - self._low) // size

    def _outside(self, places: Lanes) -> str:
        first = int(places[0])
        before = np.searchsorted(self._starts, first, "right") - 1
        text = f"{len(places)} lanes are outside of {self._name} memory, the first at {first:#x}"
        return (
            f"{text}, {first - int(self._ends[before])} bytes behind a piece"
            if before >= 0
            else text
        )

    @property
    def size(self) -> int:
        """Bytes of all pieces."""
        return int((self._ends - self._starts).sum()) + 16

    def compact(self, addresses: Lanes) -> Lanes:
        """Numbers for addresses below the size: the pieces one behind the other."""
        piece = np.searchsorted(self._starts, addresses, "right") - 1
        before = np.cumsum(self._ends - self._starts) - (self._ends - self._starts)
        return addresses.astype(np.int64) - self._starts[piece] + before[piece]

    def word_indices(self, addresses: Lanes, bits: int) -> Lanes:
        """Places of words for ``words``; raises outside of all pieces."""
        return self._indices(addresses, bits)

    def words(self, bits: int) -> Lanes:
        """All of it as words, by ``word_indices``."""
        return self._bytes().view(WORDS[bits])

    def load(self, addresses: Lanes, bits: int) -> Lanes:
        """Words at the addresses."""
        indices = self._indices(addresses, bits)
        return self.words(bits)[indices]

    def store(self, addresses: Lanes, values: Lanes) -> None:
        """Of equal addresses the last one stays."""
        bits = values.dtype.itemsize * 8
        indices = self._indices(addresses, bits)
        self.words(bits)[indices] = values

    def update(
        self, addresses: Lanes, change: Callable[..., Lanes], values: list[Lanes], bits: int
    ) -> Lanes:
        """Change words one after the other, where addresses repeat; returns what was there.

        ``change`` gets what is there and the values of the same lanes.
        """
        indices = self._indices(addresses, bits)
        words = self.words(bits)
        previous = np.empty(len(indices), WORDS[bits])
        for lanes in turns(indices):
            old = words[indices[lanes]]
            previous[lanes] = old
            words[indices[lanes]] = change(old, *(value[lanes] for value in values))
        return previous


class OwnMemory(Memory):
    """Memory of the machine itself, at small addresses."""

    def __init__(self, content: Lanes, name: str) -> None:
        super().__init__([(16, 16)], name)
        self._octets = content
        self._starts, self._ends = np.array([0]), np.array([len(content)])
        self._low = 0


def _joined(pieces: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Pieces that overlap become one."""
    found: list[tuple[int, int]] = []
    for start, end in pieces:
        if found and start < found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def _odd(places: Lanes, size: int) -> int:
    return int(places[places % size != 0][0])


def turns(indices: Lanes) -> list[Lanes]:
    """Lanes in as many turns as an index is repeated, none twice in a turn."""
    order = np.argsort(indices, kind="stable")
    ordered = indices[order]
    is_first = np.ones(len(ordered), np.bool_)
    is_first[1:] = ordered[1:] != ordered[:-1]
    starts = np.flatnonzero(is_first)
    lengths = np.diff(np.append(starts, len(ordered)))
    rank = np.arange(len(ordered)) - np.repeat(starts, lengths)
    return [order[rank == turn] for turn in range(int(rank.max(initial=-1)) + 1)]
