"""Looks on as warps use memory, and finds pairs of accesses that nothing orders.

Two accesses of a byte by two warps of a program, one of them a store that changes it, need a
barrier between them: each warp counts, and knows up to which count of each other one everything
lies behind it. A barrier hands on what those that arrive know. Copies of the copy engine are one
more warp. Who uses a byte twice in one warp is not looked at, nor are other programs: those are for
the interpreter.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tools.ptx_machine.kinds import Lanes
from tools.ptx_machine.memory import Memory, OwnMemory
from tools.ptx_machine.text import PtxError

NOBODY = -1


STORED, LOADED, ALIKE = 0, (1, 2), (3, 4)
"""Rows of a shadow: who changed a byte last, and the last two warps each that loaded it and that
stored the same again."""


class Shadow:
    """Who used each byte of some memory last."""

    def __init__(self, size: int) -> None:
        self.users = np.full((5, size), NOBODY, np.int16)
        self.counts = np.zeros((5, size), np.int32)
        self.programs = np.zeros((5, size), np.int32)

    def set(self, row: int, octets: Lanes, programs: Lanes, warps: Lanes, counts: Lanes) -> None:
        """Note who uses bytes."""
        self.users[row, octets] = warps
        self.counts[row, octets] = counts
        self.programs[row, octets] = programs

    def add(
        self, rows: tuple[int, int], octets: Lanes, programs: Lanes, warps: Lanes, counts: Lanes
    ) -> None:
        """The older of two gives way, but for one's own earlier use."""
        first, second = rows
        is_own = (self.users[first, octets] == warps) & (self.programs[first, octets] == programs)
        moved = octets[~is_own]
        for field in (self.users, self.counts, self.programs):
            field[second, moved] = field[first, moved]
        self.set(first, octets, programs, warps, counts)


class Watch:
    """What each warp of each program knows of the others; the copy engine is the last one."""

    def __init__(self, num_programs: int, num_warps: int, num_threads: int) -> None:
        self._num_warps, self._num_threads = num_warps, num_threads
        sides = (num_programs, num_warps + 1, num_warps + 1)
        self.known = np.zeros(sides, np.int32)
        own = np.arange(num_warps + 1)
        self.known[:, own, own] = 1
        self._met: dict[tuple[int, int], Lanes] = {}
        """What is known where programs meet, by program and number of the barrier."""
        self._counted: dict[int, Lanes] = {}
        """The same for barriers in memory, by place: of the phase that is open."""
        self._ended: dict[int, Lanes] = {}
        self._shadows: dict[int, Shadow] = {}

    def _who(self, lanes: Lanes) -> tuple[Lanes, Lanes]:
        return lanes // self._num_threads, lanes % self._num_threads // 32

    def _shadow(self, memory: Memory) -> Shadow:
        if id(memory) not in self._shadows:
            self._shadows[id(memory)] = Shadow(memory.size)
        return self._shadows[id(memory)]

    def load(self, memory: Memory, places: Lanes, lanes: Lanes, size: int) -> None:
        """Lanes load so many bytes."""
        programs, warps = self._who(lanes)
        self._load(memory, places, programs, warps, size)

    def _load(
        self, memory: Memory, places: Lanes, programs: Lanes, warps: Lanes, size: int
    ) -> None:
        shadow = self._shadow(memory)
        octets = _octets(memory.compact(places), size)
        programs, warps = np.repeat(programs, size), np.repeat(warps, size)
        early = self._early(shadow, STORED, octets, programs, warps)
        if early.any():
            # Another one may have stored the same, of whom more is known.
            for row in ALIKE:
                is_there = shadow.users[row, octets] != NOBODY
                is_there &= shadow.programs[row, octets] == programs
                early &= ~(is_there & ~self._early(shadow, row, octets, programs, warps))
            users = shadow.users[STORED, octets]
            _raise_early(early, warps, users, "loads what another warp stored")
        counts = self.known[programs, warps, warps]
        shadow.add(LOADED, octets, programs, warps, counts)

    def store(self, memory: Memory, places: Lanes, lanes: Lanes, values: Lanes) -> None:
        """Lanes store words."""
        programs, warps = self._who(lanes)
        self._store(memory, places, programs, warps, values)

    def _store(
        self, memory: Memory, places: Lanes, programs: Lanes, warps: Lanes, values: Lanes
    ) -> None:
        size = values.dtype.itemsize
        changes = memory.words(8 * size)[memory.word_indices(places, 8 * size)] != values
        _check_together(places[changes], programs[changes], warps[changes], values[changes])
        shadow, octets = self._shadow(memory), _octets(memory.compact(places), size)
        programs, warps = np.repeat(programs, size), np.repeat(warps, size)
        counts, changes = self.known[programs, warps, warps], np.repeat(changes, size)
        same = [values[~changes] for values in (octets, programs, warps, counts)]
        shadow.add(ALIKE, *same)
        octets, programs, warps, counts = (x[changes] for x in (octets, programs, warps, counts))
        for row in (STORED, *LOADED):
            early = self._early(shadow, row, octets, programs, warps)
            users = shadow.users[row, octets]
            _raise_early(early, warps, users, "stores to what another warp stored or loaded")
        shadow.set(STORED, octets, programs, warps, counts)
        for row in ALIKE:
            shadow.users[row, octets] = NOBODY

    def _early(
        self, shadow: Shadow, row: int, octets: Lanes, programs: Lanes, warps: Lanes
    ) -> Lanes:
        """Where nothing orders warps behind the use of bytes by another one of the program."""
        users = shadow.users[row, octets]
        early = (users != NOBODY) & (users != warps) & (shadow.programs[row, octets] == programs)
        some = np.flatnonzero(early)
        known = self.known[programs[some], warps[some], users[some]]
        early[some] = known < shadow.counts[row, octets[some]]
        return early

    def arrive(self, programs_and_warps: Lanes, number: int) -> None:
        """Warps come to a barrier of the program."""
        for program, warp in np.unique(programs_and_warps, axis=0).tolist():
            key = (program, number)
            own = self.known[program, warp]
            self._met[key] = np.maximum(self._met[key], own) if key in self._met else own.copy()
            own[warp] += 1

    def meet(self, programs: Lanes, number: int, freed: Lanes) -> None:
        """Those that wait at it go on."""
        of_lane, warps = self._who(np.flatnonzero(freed))
        for program, warp in np.unique(np.stack([of_lane, warps], 1), axis=0).tolist():
            self._learn(program, warp, self._met[program, number])
        for program in np.flatnonzero(programs).tolist():
            self._met.pop((program, number), None)

    def _learn(self, program: int, warp: int, known: Lanes) -> None:
        own = self.known[program, warp]
        np.maximum(own, known, out=own)
        own[warp] += 1

    def pairs(self, lanes: Lanes) -> Lanes:
        """Program and warp of each lane."""
        return np.stack(self._who(lanes), 1)

    def count(self, place: int, lane: int) -> None:
        """A lane arrives at a barrier in memory."""
        program, warp = lane // self._num_threads, lane % self._num_threads // 32
        own = self.known[program, warp]
        known = self._counted.get(place)
        self._counted[place] = own.copy() if known is None else np.maximum(known, own)
        own[warp] += 1

    def end_phase(self, place: int) -> None:
        """All have arrived."""
        if place in self._counted:
            self._ended[place] = self._counted.pop(place)

    def waited(self, places: Lanes, lanes: Lanes) -> None:
        """Lanes go on behind a barrier in memory."""
        pairs = np.unique(np.stack([places, *self._who(lanes)], 1), axis=0)
        for place, program, warp in pairs.tolist():
            if place in self._ended:
                self._learn(program, warp, self._ended[place])

    def copy_in(
        self, memory: Memory, places: Lanes, values: Lanes, barrier: int, lane: int
    ) -> None:
        """The copy engine stores, behind what the lane that began it knows."""
        program = lane // self._num_threads
        engine, warp = self._num_warps, lane % self._num_threads // 32
        known = self.known[program, engine]
        np.maximum(known, self.known[program, warp], out=known)
        known[engine] += 1
        count = len(places)
        self._store(memory, places, np.full(count, program), np.full(count, engine), values)
        before = self._counted.get(barrier)
        self._counted[barrier] = known.copy() if before is None else np.maximum(before, known)


def _raise_early(early: Lanes, warps: Lanes, users: Lanes, what: str) -> None:
    if early.any():
        first = int(np.flatnonzero(early)[0])
        pair = f"warp {warps[first]}, warp {users[first]}"
        raise PtxError(f"a race: {what} ({pair}, {int(early.sum())} bytes)")


def _octets(places: Lanes, size: int) -> Lanes:
    return (places[:, None] + np.arange(size)).reshape(-1)


def _check_together(places: Lanes, programs: Lanes, warps: Lanes, values: Lanes) -> None:
    """Raise where warps of a program store different words to one place at once."""
    order = np.argsort(places, kind="stable")
    same = places[order][1:] == places[order][:-1]
    if not same.any():
        return
    first, second = order[:-1][same], order[1:][same]
    apart = (warps[first] != warps[second]) & (programs[first] == programs[second])
    if (apart & (values[first] != values[second])).any():
        raise PtxError("a race: two warps store different values to one place at once")


class Blind:
    """Takes the place of a watch, and sees nothing."""

    def __getattr__(self, name: str) -> Any:
        return _nothing


def _nothing(*values: Any) -> None:
    pass


def make_watch(num_programs: int, num_threads: int, memory: OwnMemory, *, sees: bool) -> Any:
    """A watch, if there is room for what it has to remember."""
    if not sees or memory.size > MOST_BYTES:
        return Blind()
    return Watch(num_programs, num_threads // 32, num_threads)


MOST_BYTES = 1 << 24
