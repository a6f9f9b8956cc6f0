"""Runs emitted modules whose tiles two programs share, on the CPU.

Both programs run all their roles, with buffers and barriers of their own, in any order. A tile in
registers or shared memory is as large as Gluon says, which is that of both programs: each gets,
reads and stores its own half of the rows, and the other half stays NaN. A copy to both arrives at
each in its own time.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from copy import copy
from inspect import getgeneratorlocals
from typing import Any

import torch
from typing_extensions import override

from tests.backends.triton.warp_roles.gluon_language import Role
from tests.backends.triton.warp_roles.gluon_memory import (
    Barrier,
    Buffer,
    Descriptor,
    ProtocolError,
    Ring,
    View,
)
from tests.backends.triton.warp_roles.gluon_simulator import Machine, Simulation, _Running

PROGRAMS = 2


class SharedDescriptor(Descriptor):
    """A tensor whose tiles lie in two programs."""

    def __init__(
        self,
        base: torch.Tensor,
        shape: Sequence[int],
        strides: Sequence[int],
        block: Sequence[int],
        basis: Sequence[int],
    ) -> None:
        super().__init__(base, shape, strides, block)
        self.basis = tuple(basis)

    @property
    @override
    def num_bytes(self) -> int:
        return super().num_bytes // (PROGRAMS if any(self.basis) else 1)

    def part(self, rank: int) -> tuple[slice, ...]:
        """What a program has of a tile."""
        sizes = zip(self.block, self.basis)
        halves = [size // PROGRAMS if is_cut else size for size, is_cut in sizes]
        starts = [rank * half if is_cut else 0 for half, is_cut in zip(halves, self.basis)]
        return tuple(slice(start, start + half) for start, half in zip(starts, halves))

    def write_part(self, start: Sequence[int], tile: torch.Tensor) -> None:
        """What one program has."""
        one = copy(self)
        one.block = tuple(tile.shape)
        one.write(start, tile)


class ClusterMachine(Machine):
    """Two programs of a cluster at once."""

    def __init__(self, programs: Sequence[Sequence[Role]], choose: random.Random) -> None:
        super().__init__([role for roles in programs for role in roles], choose)
        self._each = len(programs[0])
        self._rings = [_rings(roles[0]) for roles in programs]
        self._meeting: set[int] = set()
        """Roles that have come, until all have."""
        self._flights: list[tuple[int, SharedDescriptor, Sequence[int], Barrier, Buffer]] = []

    @override
    def run(self) -> None:
        self._runnings = runnings = [_Running(role) for role in self.roles]
        for running in runnings:
            running.resume(None)
        while True:
            alive = [i for i, running in enumerate(runnings) if running.action is not None]
            ready = [i for i in alive if self._can_go_on(i, runnings)]
            if not alive and not self._flights:
                return
            if not ready and not self._flights:
                raise ProtocolError(f"roles wait for ever: {[runnings[i].action for i in alive]}")
            if ready and not (self._flights and self.choose.random() < 0.1):
                number = self.choose.choice(ready)
                self._rank = number // self._each
                self._meeting.discard(number)
                self._step(runnings[number])
            else:
                self._arrive_late(self._flights.pop(self.choose.randrange(len(self._flights))))

    def _can_go_on(self, number: int, runnings: Sequence[_Running]) -> bool:
        action, rank = runnings[number].action, number // self._each
        assert action is not None
        if action.name == "_meet":
            if all(r.action is not None and r.action.name == "_meet" for r in runnings):
                self._meeting = self._meeting or set(range(len(runnings)))
            return number in self._meeting
        if action.name == "_listen" and rank == 0:
            ring, event, length = action.args
            turn = event + length
            return ring.index(turn % length).passes(((turn // length) & 1) ^ 1)
        return action.name == "_listen" or runnings[number].can_go_on

    def _meet(self, *_: Any) -> None:
        pass

    def _listen(self, *_: Any) -> None:
        pass

    def _tell(self, _: _Running, ring: Ring, slot: int) -> None:
        if self._rank:
            self._reach(0)
            self._rings[0][ring.name].index(slot).arrive()

    def _reach(self, rank: int) -> None:
        """Memory of a program is there for as long as one of its roles runs."""
        first = rank * self._each
        if all(r.action is None for r in self._runnings[first : first + self._each]):
            raise ProtocolError(f"program {rank} has left already")

    @override
    def _async_copy_global_to_shared(
        self,
        _: _Running,
        source: Descriptor,
        start: Any,
        barrier: Barrier,
        place: View,
        multicast: bool = False,
    ) -> None:
        assert isinstance(source, SharedDescriptor)
        assert multicast != any(source.basis)
        if multicast and self._rank:
            return
        for rank in range(PROGRAMS) if multicast else [self._rank]:
            self._reach(rank)
            buffer = self._rings[rank][place.buffer.name].items[place.buffer.slot]
            other = self._rings[rank][barrier.name].items[barrier.slot]
            assert buffer.data.shape == source.block
            buffer.write("a copy into")
            buffer.is_filling = True
            buffer.data.fill_(math.nan)
            self._flights.append((rank, source, start, other, buffer))

    def _arrive_late(
        self, flight: tuple[int, SharedDescriptor, Sequence[int], Barrier, Buffer]
    ) -> None:
        rank, source, start, barrier, buffer = flight
        if buffer.readers:
            raise ProtocolError(f"a copy arrives in {buffer.name} while a product reads it")
        part = source.part(rank)
        buffer.data[part] = source.read(start)[part]
        buffer.is_filling = False
        barrier.bytes_left -= source.num_bytes
        barrier.end_phase()

    @override
    def _store_wait(self, running: _Running, left: int) -> None:
        done = max(0, len(running.stores) - left)
        for target, start, place in running.stores[:done]:
            place.buffer.readers -= 1
            assert isinstance(target, SharedDescriptor)
            part = target.part(self._rank)
            moved = [first + piece.start for first, piece in zip(start, part)]
            own = place.buffer.data[part]
            target.write_part(moved, own)
        del running.stores[:done]


def _rings(role: Role) -> dict[str, Ring]:
    return {k: v for k, v in getgeneratorlocals(role).items() if isinstance(v, Ring)}


class ClusterSimulation(Simulation):
    """An emitted module, ready to be called as its kernel is."""

    def __init__(self, text: str, *, seed: int = 0, **options: Any) -> None:
        super().__init__(text, seed=seed, **options)
        self._choose = random.Random(seed)
        gl = self.names["gl"]
        gl.NVMMASharedLayout = lambda *_, cga_layout: tuple(cga_layout[0])
        self.names["TensorDescriptor"] = SharedDescriptor
        self.names["_peer_barriers"] = _peer_barriers

    @override
    def run_cluster(self, programs: list[list[Role]]) -> None:
        ClusterMachine(programs, self._choose).run()


def _peer_barriers(length: int, arrivals: int) -> Ring:
    return Ring([Barrier("", slot, arrivals) for slot in range(length)])
