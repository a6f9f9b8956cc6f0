"""What watches a run: which elements it writes, and which two programs use with no order.

For each storage three shadows hold, element by element, which program stored to it, loaded it, or
updated it atomically. Atomics do not race with each other. A program that has used an acquiring
atomic is taken to be synchronised and is not checked from there on.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

import torch

from tilesmith.exc import RaceDetected
from tilesmith.interpreter.access import Access
from tilesmith.ir.ops.memory import Atomic, Load, Store

_NOBODY, _SEVERAL = 0, -1
AccessOp = Load | Store | Atomic


@dataclass(frozen=True)
class _Shadow:
    """For each element, the one program (numbered from 1) that used it so, nobody, or several."""

    stored: torch.Tensor
    loaded: torch.Tensor
    updated: torch.Tensor
    written_in: torch.Tensor
    """The stretch between two barriers of one program in which it was last written."""


class RaceDetector:
    """Told of each program's start and of its accesses, before they happen.

    A fourth shadow is about one program alone: its threads see what others of them wrote only after
    a barrier, so a load must not read what the program has written since the last one.
    """

    def __init__(self) -> None:
        self._shadows: dict[tuple[int, int], _Shadow] = {}
        self._programs: list[tuple[int, ...]] = [()]
        self._is_synchronized = False
        self._is_inside = False
        self._stretch = 0

    def begin_program(self, starts: tuple[int, ...]) -> None:
        """What follows belongs to a new program, whose tiles start there."""
        self._programs.append(starts)
        self._is_synchronized = False
        self._is_inside = True
        self._stretch += 1

    def end_grid(self) -> None:
        """All programs of a grid have run."""
        self._is_inside = False

    def barrier(self) -> None:
        """Between grids: everything before happens before everything after."""
        self._stretch += 1
        if not self._is_inside:
            self._shadows.clear()

    def read(self, op: Load, tensor: torch.Tensor, access: Access) -> None:
        """A load: races with stores and atomics of other programs."""
        shadow = self._shadow(tensor)
        self._check(op, tensor, access, {"stores to": shadow.stored, "updates": shadow.updated})
        self._check_order(op, tensor, access, shadow)
        self._mark(shadow.loaded, tensor, access)

    def write(self, op: Store, tensor: torch.Tensor, access: Access) -> None:
        """A store: races with everything of other programs."""
        shadow = self._shadow(tensor)
        others = {"stores to": shadow.stored, "loads": shadow.loaded, "updates": shadow.updated}
        self._check(op, tensor, access, others)
        self._mark(shadow.stored, tensor, access)
        self._note_stretch(shadow, tensor, access)

    def update(self, op: Atomic, tensor: torch.Tensor, access: Access) -> None:
        """An atomic: races with plain loads and stores of other programs."""
        shadow = self._shadow(tensor)
        self._check(op, tensor, access, {"stores to": shadow.stored, "loads": shadow.loaded})
        self._mark(shadow.updated, tensor, access)
        self._note_stretch(shadow, tensor, access)
        self._is_synchronized = self._is_synchronized or op.acquires

    def _shadow(self, tensor: torch.Tensor) -> _Shadow:
        storage = tensor.untyped_storage()
        key = storage.data_ptr(), tensor.itemsize
        if key not in self._shadows:
            count = storage.nbytes() // tensor.itemsize
            planes = torch.zeros((4, count), dtype=torch.int32, device=tensor.device)
            self._shadows[key] = _Shadow(*planes)
        return self._shadows[key]

    def _mark(self, plane: torch.Tensor, tensor: torch.Tensor, access: Access) -> None:
        me = len(self._programs) - 1
        shadow = _like(plane, tensor)
        seen = access.read(shadow)
        is_mine = (seen == _NOBODY) | (seen == me)
        mark = torch.where(is_mine, me, _SEVERAL).to(torch.int32)
        _write(plane, tensor, access, mark)

    def _note_stretch(self, shadow: _Shadow, tensor: torch.Tensor, access: Access) -> None:
        now = torch.full((), self._stretch, dtype=torch.int32, device=tensor.device)
        _write(shadow.written_in, tensor, access, now.expand(access.lengths))

    def _check_order(self, op: Load, tensor: torch.Tensor, access: Access, shadow: _Shadow) -> None:
        """A load of what the program wrote itself, with no barrier since."""
        if self._is_synchronized or not self._is_inside:
            return
        is_recent = access.read(_like(shadow.written_in, tensor)) == self._stretch
        if is_recent.any():
            me = _describe(self._programs[-1])
            index = _first_index(tensor, access, is_recent)
            conflict = f"{me} writes it, and loads it with no barrier in between"
            raise RaceDetected(
                tensor=op.tensor.name,
                index=index,
                conflict=conflict,
                loc=op.loc,
                note="threads of a program see what others of them wrote only after a barrier",
                fix="this is a bug in tilesmith, which puts barriers where they are needed: "
                "please report it",
            )

    def _check(
        self, op: AccessOp, tensor: torch.Tensor, access: Access, others: dict[str, torch.Tensor]
    ) -> None:
        if self._is_synchronized:
            return
        me = len(self._programs) - 1
        for verb, plane in others.items():
            seen = access.read(_like(plane, tensor))
            is_foreign = (seen != _NOBODY) & (seen != me)
            if is_foreign.any():
                number = int(seen[is_foreign][0])
                is_one = number != _SEVERAL
                other = _describe(self._programs[number]) if is_one else "another program"
                own = {Load: "loads", Store: "stores to", Atomic: "updates"}[type(op)]
                conflict = f"{other} {verb} it and {_describe(self._programs[-1])} {own} it"
                index = _first_index(tensor, access, is_foreign)
                raise RaceDetected(
                    tensor=op.tensor.name, index=index, conflict=conflict, loc=op.loc
                )


def _first_index(tensor: torch.Tensor, access: Access, chosen: torch.Tensor) -> tuple[int, ...]:
    positions = torch.arange(tensor.numel(), device=tensor.device).view(tensor.shape)
    position = access.read(positions)[chosen][0]
    return tuple(int(part) for part in torch.unravel_index(position, tensor.shape))


def _describe(starts: tuple[int, ...]) -> str:
    return f"the program at ({', '.join(map(str, starts))})"


def _like(plane: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """The shadow elements of a tensor: the same geometry over the shadow of its storage."""
    offset = plane.storage_offset() + tensor.storage_offset()
    return plane.as_strided(tensor.shape, tensor.stride(), offset)


def _write(plane: torch.Tensor, tensor: torch.Tensor, access: Access, marks: torch.Tensor) -> None:
    """Set the shadow elements that an access means; a tensor may show one element many times."""
    if 0 not in tensor.stride():
        access.write(_like(plane, tensor), marks)
        return
    # Positions count from one: lanes that are masked off read as zero.
    positions = torch.arange(1, plane.numel() + 1, device=plane.device)
    found = access.read(_like(positions, tensor)).reshape(-1)
    is_used = found > 0
    plane[found[is_used] - 1] = marks.reshape(-1)[is_used]


FEWEST = 2
"""The first and the last program are run however long they take (up to the hard limit)."""
PATIENCE = 2
"""The hard limit, in units of the time limit."""


class TimeLimitError(Exception):
    """A run that cannot be cut short takes too long."""


class Sampling:
    """Chooses programs, watches the clock, and keeps a mask of written elements per storage.

    Programs chosen are the first, the last and some in between, by seed. A run of a sample that
    comes to its time limit ends early with the programs done so far.
    """

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
