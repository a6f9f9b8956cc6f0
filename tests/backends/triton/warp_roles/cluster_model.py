"""A model of two programs that share a tile: all their roles, run in every order.

Places have the number of their program before their name. A copy to both is two flights: each
arrives in its own time, and the second may arrive before its program has announced its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from inspect import getgeneratorlocals
from typing import Any

from typing_extensions import override

from tests.backends.triton.warp_roles.cluster_simulator import ClusterSimulation
from tests.backends.triton.warp_roles.gluon_language import Role
from tests.backends.triton.warp_roles.gluon_simulator import Action
from tests.backends.triton.warp_roles.warp_role_model import (
    Explorer,
    Op,
    Place,
    Programs,
    State,
    _blocks,
    _Recorder,
    _Running,
    _set_turns,
    _Shared,
)

MEETING = ("meeting", 0)


def record_cluster(text: str, name: str, args: Sequence[Any], turns: Sequence[int]) -> Programs:
    """What all roles of the first cluster of a launch do, whose tiles take so many turns."""
    module, found = _Recording(text, num_sms=1, change=_set_turns), Programs()
    module[name](*args)
    each = len(module.programs[0])
    for rank, roles in enumerate(module.programs):
        shared = _Shared(dict(getgeneratorlocals(roles[0])), each - 1, turns, {})
        for number, role in reversed(list(enumerate(roles))):
            pieces = iter(turns)
            module.names["Turns"] = lambda pieces=pieces: next(pieces)
            ops = _ClusterRecorder(number, shared, rank).record(role)
            found.roles.append([_moved(op, rank) for op in ops])
        found.counts |= {_at(place, rank): count for place, count in shared.counts.items()}
    found.counts[MEETING] = len(found.roles)
    return found


class _Recording(ClusterSimulation):
    programs: Sequence[Sequence[Role]] = ()

    @override
    def run_cluster(self, programs: list[list[Role]]) -> None:
        self.programs = self.programs or programs


def _at(place: Place, rank: int) -> Place:
    return (f"{rank} {place[0]}", place[1]) if place != MEETING else place


def _moved(op: Op, rank: int) -> Op:
    """An operation with its program in the names of places."""
    name, *rest = op
    if name == "tell":
        return "arrive", _at(rest[0], 0)
    if name == "copy":
        place, label, barrier = rest
        return name, _at(place, rank), label, _at(barrier, rank)
    if name == "copy_to_both":
        place, label, barrier = rest
        return name, *(_at(place, r) for r in range(2)), label, *(_at(barrier, r) for r in range(2))
    if name == "done":
        return name, tuple(_at(place, rank) for place in rest[0])
    return name, _at(rest[0], rank), *rest[1:]


class _ClusterRecorder(_Recorder):
    def __init__(self, number: int, shared: _Shared, rank: int) -> None:
        super().__init__(number, shared)
        self._rank, self._met = rank, 0

    def _tell(self, action: Action) -> tuple[list[Op], None]:
        ring, slot = action.args
        return [("tell", self._barrier(ring.items[slot]))] * self._rank, None

    def _listen(self, action: Action) -> tuple[list[Op], None]:
        ring, event, length = action.args
        turn = event + length
        place = self._barrier(ring.items[turn % length])
        wait = ("wait", place, ((turn // length) & 1) ^ 1)
        return [wait] if self._rank == 0 else [], None

    def _meet(self, _: Action) -> tuple[list[Op], None]:
        self._met += 1
        return [("arrive", MEETING), ("wait", MEETING, (self._met & 1) ^ 1)], None

    @override
    def _async_copy_global_to_shared(self, action: Action) -> tuple[list[Op], None]:
        ((_, *rest),), _ = super()._async_copy_global_to_shared(action)
        if not action.options.get("multicast"):
            return [("copy", *rest)], None
        return [("copy_to_both", *rest)] if self._rank == 0 else [], None


class ClusterExplorer(Explorer):
    """Every order of both programs."""

    num_programs = 2

    def __init__(self, programs: Programs) -> None:
        self._counts = programs.counts
        self._roles = [
            [[(number + start, op) for number, op in block] for block in _blocks(role, False)]
            for role, start in zip(programs.roles, range(0, 1 << 30, 1 << 16))
        ]
        self._copies: dict[int, list[Op]] = {}
        self._expected: dict[int, Place] = {}
        for role in self._roles:
            announced = 0
            for number, op in ((number, op) for block in role for number, op in block):
                if op[0] == "expect":
                    announced = number
                    self._expected[number] = op[1]
                elif op[0] == "copy":
                    self._copies.setdefault(announced, []).append(op)
                elif op[0] == "copy_to_both":
                    _, here, there, label, barrier, other = op
                    self._copies.setdefault(announced, []).append(("copy", here, label, barrier))
                    self._copies.setdefault(-announced, []).append(("copy", there, label, other))
                    self._expected[-announced] = other

    @override
    def _start(self, state: State) -> _Running:
        return _RunningCluster(state, self._counts, self._copies)


class _RunningCluster(_Running):
    @override
    def expect(self, number: int, barrier: Place) -> bool:
        """The second program's barrier waits for what the first has copied, too."""
        self.add(barrier, 1, 1 if barrier[0].startswith("0 ") else 2)
        return True

    @override
    def copy(self, number: int, place: Place, label: Any, _: Place) -> bool:
        announced = max(event for event in self._copies if event < number)
        return self._begin(announced, place, label)

    def _begin(self, flight: int, place: Place, label: Any) -> bool:
        self.write(0, place)
        self.contents[place] = "being filled"
        if self._copies[flight][-1][1:3] == (place, label):
            self.flights.add(flight)
        return True

    def copy_to_both(self, number: int, here: Place, there: Place, label: Any, *_: Place) -> bool:
        announced = max(event for event in self._copies if event < number)
        return self._begin(announced, here, label) and self._begin(-announced, there, label)
