"""Copies from tensors to a program's memory that go on while lanes do (``cp.async``).

A copy may happen at once or as late as the wait for it allows; ``late`` in the state's ``extra``
says which. What is loaded too early, or stored too early over what a copy has yet to read, shows in
one of the two.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tools.ptx_machine.access import Place
from tools.ptx_machine.arrivals import barriers_of, places_of
from tools.ptx_machine.bulk import decode_bulk
from tools.ptx_machine.kinds import KINDS, Lanes
from tools.ptx_machine.memory import Memory
from tools.ptx_machine.state import State, Step, active, read_as
from tools.ptx_machine.text import Instruction, Number, PtxError, Register


class Copies:
    """Copies of each lane that are under way, in groups."""

    def __init__(self, count: int) -> None:
        self.begun: list[tuple[Lanes, Callable[[Lanes], None]]] = []
        """Lanes and what copies for some of them, not yet in a group."""
        self.groups: list[tuple[Lanes, list[tuple[Lanes, Callable[[Lanes], None]]]]] = []
        """Lanes that committed a group and what is in it, the oldest first."""
        self._count = count

    def commit(self, mask: Lanes) -> None:
        """Lanes close their groups."""
        self.groups.append((mask, self.take(mask)))

    def take(self, mask: Lanes) -> list[tuple[Lanes, Callable[[Lanes], None]]]:
        """Copies of these lanes that are in no group yet, and in none later."""
        inside: list[tuple[Lanes, Callable[[Lanes], None]]] = []
        rest: list[tuple[Lanes, Callable[[Lanes], None]]] = []
        for lanes, copy in self.begun:
            if (lanes & mask).any():
                inside.append((lanes & mask, copy))
            if (lanes & ~mask).any():
                rest.append((lanes & ~mask, copy))
        self.begun = rest
        return inside

    def wait(self, mask: Lanes, allowed: int) -> None:
        """Let at most so many of the newest groups of these lanes stay under way."""
        newer = np.zeros(self._count, np.int64)
        due: list[int] = []
        kept = []
        for place in range(len(self.groups) - 1, -1, -1):
            lanes, _ = self.groups[place]
            ready = lanes & mask & (newer >= allowed)
            newer += lanes
            if ready.any():
                due.append(place)
        for place in reversed(due):
            lanes, inside = self.groups[place]
            ready = lanes & mask & self._is_old(place, allowed)
            for some, copy in inside:
                if (some & ready).any():
                    copy(some & ready)
            left = lanes & ~ready
            self.groups[place] = (left, [(some & left, copy) for some, copy in inside])
        kept = [group for group in self.groups if group[0].any()]
        self.groups = kept

    def _is_old(self, place: int, allowed: int) -> Lanes:
        """Lanes with at least so many newer groups."""
        newer = sum(
            (lanes.astype(np.int64) for lanes, _ in self.groups[place + 1 :]),
            np.zeros(self._count, np.int64),
        )
        return newer >= allowed


def _copies(state: State) -> Copies:
    if "copies" not in state.extra:
        state.extra["copies"] = Copies(state.count)
    return state.extra["copies"]


def decode_copy(instruction: Instruction) -> Step:
    """``cp.async`` and its groups."""
    parts, operands = instruction.parts, instruction.operands
    if "bulk" in parts:
        return decode_bulk(instruction)
    if "commit_group" in parts:
        return lambda state, mask: _copies(state).commit(_mask(state, mask))
    if "wait_group" in parts or "wait_all" in parts:
        allowed = int(operands[0].text) if operands and isinstance(operands[0], Number) else 0
        return _decode_wait(allowed, is_all="wait_all" in parts)
    if "mbarrier" in parts:
        return _decode_counted(instruction)
    return _decode_begin(instruction)


def _decode_counted(instruction: Instruction) -> Step:
    """A barrier in memory counts each lane when its copies are done."""
    if "noinc" not in instruction.parts:
        raise PtxError("copies that a barrier does not expect")
    place = Place(instruction.operands[0], "shared")

    def count(state: State, mask: Lanes | None) -> None:
        lanes, barriers = active(state, mask), barriers_of(state)
        begun = _copies(state).take(_mask(state, mask))

        def arrive() -> None:
            for some, copy in begun:
                copy(some)
            for lane, barrier in zip(lanes.tolist(), places):
                state.extra["watch"].count(barrier, lane)
                barriers.arrive(barrier, 1)

        places = places_of(place, state, lanes)
        if not state.extra.get("late"):
            arrive()
            return
        # All lanes of an instruction are counted together, by whoever waits first.
        shared = Once(arrive)
        for barrier in dict.fromkeys(places):
            state.extra.setdefault("pending", {}).setdefault(barrier, []).append((shared, 0))

    return count


class Once:
    """Does something the first time it is called."""

    def __init__(self, act: Callable[[], None]) -> None:
        self._act: Callable[[], None] | None = act

    def __call__(self) -> None:
        """Do it, unless it was done."""
        act, self._act = self._act, None
        if act is not None:
            act()


def _mask(state: State, mask: Lanes | None) -> Lanes:
    return np.ones(state.count, np.bool_) if mask is None else mask.copy()


def _decode_wait(allowed: int, *, is_all: bool) -> Step:
    def wait(state: State, mask: Lanes | None) -> None:
        copies, lanes = _copies(state), _mask(state, mask)
        if is_all:
            copies.commit(lanes)
        copies.wait(lanes, allowed)

    return wait


@dataclass(frozen=True)
class _Copy:
    """Copies of some lanes, ``count`` bytes each, of which those beyond a lane's size are zeros."""

    state: State
    memory: Memory
    sources: Lanes
    places: Lanes
    sizes: Lanes
    lanes: Lanes
    count: int

    def __call__(self, mask: Lanes) -> None:
        """Do those of a mask."""
        chosen, shared = mask[self.lanes], self.state.shared
        for offset in range(0, self.count, 4):
            bits = self._words(chosen, offset)[chosen]
            where = self.places[chosen] + offset
            self.state.extra["watch"].store(shared, where, self.lanes[chosen], bits)
            shared.store(where, bits)

    def _words(self, chosen: Lanes, offset: int) -> Lanes:
        bits = np.zeros(len(self.lanes), np.uint32)
        inside = chosen & (self.sizes >= offset + 4)
        if inside.any():
            bits[inside] = self.memory.load(self.sources[inside] + offset, 32)
        for byte in range(3):
            some = chosen & (self.sizes > offset + byte) & (self.sizes < offset + 4)
            if some.any():
                octets = self.memory.load(self.sources[some] + offset + byte, 8)
                bits[some] |= octets.astype(np.uint32) << np.uint32(8 * byte)
        return bits


def _decode_begin(instruction: Instruction) -> Step:
    target, source, size, *given = instruction.operands
    assert isinstance(size, Number)
    count = int(size.text, 0)
    if given and isinstance(given[0], Register) and given[0].bits == 1:
        raise PtxError("copies that a predicate leaves out")
    to, start = Place(target, "shared"), Place(source, "global")
    read = read_as(given[0], KINDS["u32"]) if given else None

    def begin(state: State, mask: Lanes | None) -> None:
        lanes = active(state, mask)
        memory, sources = start.find(state, lanes, 1)
        places = to.find(state, lanes, count)[1]
        if np.any(places % count):
            raise PtxError("misaligned copy")
        sizes = np.full(len(lanes), count)
        if read is not None:
            sizes = np.broadcast_to(read(state), (state.count,))[lanes].astype(np.int64)
        if np.any(sources[sizes > 0] % count):
            raise PtxError("misaligned copy")
        copy, chosen = (
            _Copy(state, memory, sources, places, sizes, lanes, count),
            _mask(state, mask),
        )
        if state.extra.get("late"):
            _copies(state).begun.append((chosen, copy))
        else:
            copy(chosen)

    return begin
