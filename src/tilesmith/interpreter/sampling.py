"""Runs of some programs of each grid, within a time limit, that note which elements are written.

Programs chosen are the first, the last and some in between, by seed. A run of a sample that comes
to its time limit ends early with the programs done so far.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from math import prod

import torch

from tilesmith.interpreter.access import Access

FEWEST = 2
"""The first and the last program are run however long they take (up to the hard limit)."""
PATIENCE = 2
"""The hard limit, in units of the time limit."""


class TimeLimitError(Exception):
    """A run that cannot be cut short takes too long."""


class Sampling:
    """Chooses programs, watches the clock, and keeps a mask of written elements per storage."""

    def __init__(
        self,
        max_programs: int | None = None,
        seed: int = 0,
        time_limit_s: float | None = None,
        chosen: Sequence[Sequence[int]] | None = None,
    ) -> None:
        self._max_programs = max_programs
        """None: all, and no run may end early."""
        self._random = random.Random(seed)
        self._chosen = chosen
        """Which programs of each grid, where that is already decided."""
        self._start = time.perf_counter()
        self._limit = time_limit_s
        self.done: list[list[int]] = []
        """The programs that were run, for each grid, as numbers in row-major order."""
        self.num_programs: list[int] = []
        """How many programs each grid has."""
        self._masks: dict[tuple[int, int], torch.Tensor] = {}

    @property
    def is_complete(self) -> bool:
        """Whether all programs were run."""
        return [len(done) for done in self.done] == self.num_programs

    def starts(
        self, ranges: Sequence[range], *, is_whole: bool = False
    ) -> Iterator[tuple[int, ...]]:
        """The first indices of the tiles of each program to run: of all, if ``is_whole``."""
        count = prod(map(len, ranges))
        done: list[int] = []
        numbers = range(count) if is_whole else self._numbers(count)
        self.num_programs.append(count)
        self.done.append(done)
        for number in numbers:
            may_stop = self._may_stop and not is_whole
            if may_stop and self._is_over and len(done) >= FEWEST:
                return
            yield _position(number, ranges)
            done.append(number)

    def watch(self, starts: Iterator[tuple[int, ...]]) -> Iterator[tuple[int, ...]]:
        """The same, with a look at the clock before each."""
        for start in starts:
            self.check_time()
            yield start

    def check_time(self) -> None:
        """Raise if the run should have ended long ago."""
        if self._limit is None:
            return
        limit = self._limit * (PATIENCE if self._may_stop else 1)
        if time.perf_counter() - self._start > limit:
            raise TimeLimitError(f"it takes longer than {limit:g} s")

    def note_write(self, tensor: torch.Tensor, access: Access) -> None:
        """A store to elements of a tensor."""
        written = torch.ones((), dtype=torch.bool, device=tensor.device).expand(access.lengths)
        access.write(self.mask_of(tensor), written)

    def mask_of(self, tensor: torch.Tensor) -> torch.Tensor:
        """For each element of a tensor whether it was written, through whatever view."""
        storage = tensor.untyped_storage()
        key = storage.data_ptr(), tensor.itemsize
        if key not in self._masks:
            count = storage.nbytes() // tensor.itemsize
            self._masks[key] = torch.zeros(count, dtype=torch.bool, device=tensor.device)
        mask = self._masks[key]
        return mask.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())

    @property
    def _may_stop(self) -> bool:
        return self._max_programs is not None and self._chosen is None

    @property
    def _is_over(self) -> bool:
        return self._limit is not None and time.perf_counter() - self._start > self._limit

    def _numbers(self, count: int) -> Sequence[int]:
        if self._chosen is not None:
            return self._chosen[len(self.done)]
        if self._max_programs is None:
            return range(count)
        ends = [0, count - 1][:count]
        others = max(0, min(count, self._max_programs) - FEWEST)
        return [*ends, *(1 + n for n in self._random.sample(range(max(0, count - 2)), others))]


def _position(number: int, ranges: Sequence[range]) -> tuple[int, ...]:
    index: list[int] = []
    for axis in reversed(ranges):
        number, place = divmod(number, len(axis))
        index.append(axis[place])
    return tuple(reversed(index))
