"""Barriers in a program's memory that count arrivals and bytes (``mbarrier``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tools.ptx_machine.access import Place
from tools.ptx_machine.kinds import KINDS, Lanes
from tools.ptx_machine.ordinary import destination
from tools.ptx_machine.state import Read, State, Step, active, read_as
from tools.ptx_machine.text import Instruction, Number, PtxError


@dataclass
class Barrier:
    """A phase ends when nobody is left to arrive and no bytes to come."""

    expected: int
    pending: int
    phase: int = 0
    octets: int = 0

    def settle(self) -> None:
        """End the phase if nothing is missing."""
        if self.pending < 0:
            raise PtxError("more arrivals at a barrier than it counts")
        if not self.pending and not self.octets:
            self.phase += 1
            self.pending = self.expected


class Barriers:
    """All of them, by their place in the memory of all programs."""

    def __init__(self) -> None:
        self._known: dict[int, Barrier] = {}
        self.changes = 0
        """Counts phases that ended."""
        self.watch: Any = None

    def make(self, place: int, count: int) -> None:
        """``mbarrier.init``."""
        self._known[place] = Barrier(count, count)

    def end(self, place: int) -> None:
        """``mbarrier.inval``."""
        del self._known[place]

    def at(self, place: int) -> Barrier:
        """The barrier; raises where there is none."""
        if place not in self._known:
            raise PtxError("a barrier that nobody has made")
        return self._known[place]

    def arrive(self, place: int, count: int, octets: int = 0) -> None:
        """So many arrive; more bytes are to come."""
        barrier = self.at(place)
        barrier.octets += octets
        barrier.pending -= count
        self._settle(place, barrier)

    def deliver(self, place: int, octets: int) -> None:
        """Bytes have come."""
        barrier = self.at(place)
        barrier.octets -= octets
        self._settle(place, barrier)

    def _settle(self, place: int, barrier: Barrier) -> None:
        before = barrier.phase
        barrier.settle()
        if barrier.phase != before:
            self.changes += 1
            self.watch.end_phase(place)


def barriers_of(state: State) -> Barriers:
    """Those of all programs that run together."""
    if "barriers" not in state.extra:
        state.extra["barriers"] = Barriers()
        state.extra["barriers"].watch = state.extra["watch"]
    return state.extra["barriers"]


def places_of(place: Place, state: State, lanes: Lanes) -> list[int]:
    """Where the barriers lie that lanes name."""
    return place.find(state, lanes, 8)[1].tolist()


def decode_barrier(instruction: Instruction) -> Step:
    """``mbarrier`` but for waits, which the machine itself sees to."""
    parts, operands = instruction.parts, list(instruction.operands)
    name = parts[1]
    if name in ("init", "inval", "expect_tx"):
        return _decode_made(name, instruction)
    if name != "arrive":
        raise PtxError(f"mbarrier.{name}")
    slot = destination(operands.pop(0)) if len(operands) > 1 or "_" in str(operands[0]) else -1
    place = Place(operands[0], "shared")
    count = read_as(operands[1] if len(operands) > 1 else Number("1"), KINDS["u32"])
    is_bytes = "expect_tx" in parts

    def arrive(state: State, mask: Lanes | None) -> None:
        lanes = active(state, mask)
        numbers = np.broadcast_to(count(state), (state.count,))[lanes].tolist()
        barriers = barriers_of(state)
        for lane, where, number in zip(lanes.tolist(), places_of(place, state, lanes), numbers):
            state.extra["watch"].count(where, lane)
            barriers.arrive(where, 1 if is_bytes else number, number if is_bytes else 0)
        if slot >= 0:
            state.write(slot, np.array(0, np.uint64), mask)

    return arrive


def _decode_made(name: str, instruction: Instruction) -> Step:
    place, *rest = instruction.operands
    where = Place(place, "shared")
    count = read_as(rest[0], KINDS["u32"]) if rest else None

    def change(state: State, mask: Lanes | None) -> None:
        lanes, barriers = active(state, mask), barriers_of(state)
        numbers = [0] * len(lanes)
        if count is not None:
            numbers = np.broadcast_to(count(state), (state.count,))[lanes].tolist()
        for each, number in zip(places_of(where, state, lanes), numbers):
            if name == "init":
                barriers.make(each, number)
            elif name == "inval":
                barriers.end(each)
            else:
                barriers.arrive(each, 0, number)

    return change


@dataclass(frozen=True)
class Wait:
    """A wait for a barrier's phase: ``find`` says for which lanes it has ended."""

    slot: int
    place: Place
    parity: Read

    def find(self, state: State, mask: Lanes | None) -> tuple[Lanes, Lanes]:
        """Lanes, and for which of them it has."""
        lanes = active(state, mask)
        barriers = barriers_of(state)
        parities = np.broadcast_to(self.parity(state), (state.count,))[lanes].tolist()
        places = self.place.find(state, lanes, 8)[1]
        done = [barriers.at(p).phase & 1 != parity for p, parity in zip(places.tolist(), parities)]
        return lanes, np.array(done, np.bool_)

    def wanted(self, state: State, mask: Lanes | None) -> set[int]:
        """Places of the barriers."""
        return set(places_of(self.place, state, active(state, mask)))


def decode_wait(instruction: Instruction) -> Wait:
    """``mbarrier.try_wait.parity`` and ``test_wait``."""
    if "parity" not in instruction.parts:
        raise PtxError("waits by states of barriers")
    target, place, parity, *_ = instruction.operands
    return Wait(destination(target), Place(place, "shared"), read_as(parity, KINDS["u32"]))
