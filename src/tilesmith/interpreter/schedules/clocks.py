"""Races by what happens before what: each program has a clock, and knows of those of others.

Two accesses race if neither program knew of the other's when it made its own. A program learns by
an acquiring atomic what others had done before a releasing one of the same element. Exact, where
the detector of ordinary runs takes a program that has acquired anything to know everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from tilesmith.exc import RaceDetected
from tilesmith.interpreter.access import Access
from tilesmith.interpreter.observers import RaceDetector
from tilesmith.ir.ops.memory import Atomic, Load, Store

Clock = torch.Tensor
"""Of a program or an element: for each program the time up to which all it did is known."""
_Op = Load | Store | Atomic
_VERBS = {Load: "loads", Store: "stores to", Atomic: "updates"}


@dataclass(eq=False)
class _History:
    """For each program and element of a storage the time of its last access; 0: none."""

    times: dict[type, torch.Tensor] = field(default_factory=dict[type, torch.Tensor])
    released: dict[int, Clock] = field(default_factory=dict[int, Clock])
    """By element: what whoever acquires it learns."""


class ClockedRaces(RaceDetector):
    """Told of each access of programs that run in turns, before it happens."""

    def __init__(self, written: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self._written = {tensor.untyped_storage().data_ptr() for tensor in written}
        """Storages that somebody writes: in others there is nothing to see."""
        self._planes: dict[tuple[int, int], _History] = {}
        self._clocks: list[Clock] = []
        self._starts: list[tuple[int, ...]] = []
        self._me: int | None = None

    def begin_programs(self, starts: list[tuple[int, ...]]) -> int:
        """Programs of a grid whose tiles start there; the number of the first."""
        first, count = len(self._starts), len(self._starts) + len(starts)
        self._starts += starts
        self._clocks += [torch.zeros(0, dtype=torch.int32) for _ in starts]
        self._clocks = [_longer(clock, count) for clock in self._clocks]
        for number in range(first, count):
            self._clocks[number][number] = 1
        for history in self._planes.values():
            history.times = {kind: _longer(plane, count) for kind, plane in history.times.items()}
            history.released = {at: _longer(clock, count) for at, clock in history.released.items()}
        return first

    def turn_to(self, number: int | None) -> None:
        """What follows is done by that program; None: by none."""
        self._me = number

    def barrier(self) -> None:
        """Between grids everything before happens before everything after."""
        if self._me is None:
            self._planes.clear()
            self._clocks.clear()
            self._starts.clear()

    def read(self, op: Load, tensor: torch.Tensor, access: Access) -> None:
        """A load: races with stores and atomics."""
        self._note(op, tensor, access, (Store, Atomic))

    def write(self, op: Store, tensor: torch.Tensor, access: Access) -> None:
        """A store: races with everything."""
        self._note(op, tensor, access, (Store, Load, Atomic))

    def update(self, op: Atomic, tensor: torch.Tensor, access: Access) -> None:
        """An atomic: races with plain loads and stores."""
        positions = self._note(op, tensor, access, (Store, Load))
        if op.acquires:
            self.acquire(tensor, positions)
        if op.releases:
            self.release(tensor, positions)

    def acquire(self, tensor: torch.Tensor, positions: torch.Tensor) -> None:
        """Learn what is known at elements of a storage."""
        if self._me is None:
            return
        released = self._history(tensor).released
        for position in positions.tolist():
            if position in released:
                known = torch.maximum(self._clocks[self._me], released[position])
                self._clocks[self._me] = known

    def release(self, tensor: torch.Tensor, positions: torch.Tensor) -> None:
        """Leave there what the program knows, and what it has done."""
        if self._me is None:
            return
        released, mine = self._history(tensor).released, self._clocks[self._me]
        for position in positions.tolist():
            released[position] = torch.maximum(released.get(position, mine), mine)
        self._clocks[self._me] = mine.clone()
        self._clocks[self._me][self._me] += 1

    def _note(
        self, op: _Op, tensor: torch.Tensor, access: Access, others: tuple[type, ...]
    ) -> torch.Tensor:
        positions = positions_of(tensor, access)
        if self._me is None or tensor.untyped_storage().data_ptr() not in self._written:
            return positions
        history, known = self._history(tensor), self._clocks[self._me]
        for other in (kind for kind in others if kind in history.times):
            times = history.times[other][:, positions]
            is_unknown = times > known[:, None]
            is_unknown[self._me] = False
            if is_unknown.any():
                raise self._race(op, tensor, other, is_unknown, positions)
        if type(op) not in history.times:
            storage = tensor.untyped_storage()
            shape = len(self._starts), storage.nbytes() // tensor.itemsize
            history.times[type(op)] = torch.zeros(shape, dtype=torch.int32)
        history.times[type(op)][self._me, positions] = known[self._me]
        return positions

    def _race(
        self,
        op: _Op,
        tensor: torch.Tensor,
        other: type,
        is_unknown: torch.Tensor,
        positions: torch.Tensor,
    ) -> RaceDetected:
        program, lane = is_unknown.nonzero()[0].tolist()
        assert self._me is not None
        conflict = (
            f"the program at {self._starts[program]} {_VERBS[other]} it and the program at "
            f"{self._starts[self._me]} {_VERBS[type(op)]} it"
        )
        index = _index_of(tensor, int(positions[lane]))
        return RaceDetected(tensor=op.tensor.name, index=index, conflict=conflict, loc=op.loc)

    def _history(self, tensor: torch.Tensor) -> _History:
        key = tensor.untyped_storage().data_ptr(), tensor.itemsize
        return self._planes.setdefault(key, _History())


def positions_of(tensor: torch.Tensor, access: Access) -> torch.Tensor:
    """The elements of the tensor's storage that an access means, each once."""
    count = tensor.untyped_storage().nbytes() // tensor.itemsize
    # They count from one: lanes that are masked off read as zero.
    numbers = torch.arange(1, count + 1)
    places = numbers.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
    found = torch.unique(access.read(places))
    return found[found > 0] - 1


def _index_of(tensor: torch.Tensor, position: int) -> tuple[int, ...]:
    rest, index = position - int(tensor.storage_offset()), [0] * tensor.dim()
    for dim in sorted(range(tensor.dim()), key=lambda dim: -tensor.stride(dim)):
        if tensor.stride(dim):
            index[dim], rest = divmod(rest, int(tensor.stride(dim)))
    return tuple(index)


def _longer(plane: torch.Tensor, count: int) -> torch.Tensor:
    missing = [count - len(plane), *plane.shape[1:]]
    return torch.cat([plane, plane.new_zeros(missing)])
