"""A model of warps with roles: the programs of a module's roles, run in every order.

Programs are what the emitted functions do, call by call, for given numbers of turns; they are
recorded by running the functions' text. The model knows barriers with phases, copies that arrive
at any later time, and products that read their operands until they are waited for.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import getgeneratorlocals
from typing import Any

import torch

from tests.backends.triton.warp_roles.gluon_memory import Barrier, ProtocolError, View
from tests.backends.triton.warp_roles.gluon_simulator import Action, Role, Simulation

Op = tuple[Any, ...]
Place = tuple[str, int]
"""A name of the module and an index: a barrier or a buffer."""
Label = tuple[int, int]
"""Which tile of a buffer's it is, and of which group; the group is -1 where all have the same."""


def _set_turns(tree: ast.Module) -> ast.Module:
    """Let the number of turns be what the model says."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "turns":
            node.value = ast.parse("Turns()", mode="eval").body
    return tree


Reads = Mapping[str, Sequence[int]]
"""Which tile of a buffer's each of its readers must find, in order."""


def record(
    text: str, name: str, args: Sequence[Any], turns: Sequence[int], reads: Reads | None = None
) -> Programs:
    """The programs of the first program of a launch, whose tiles take so many turns."""
    found: list[Programs] = []

    def run_program(roles: list[Role]) -> None:
        if not found:
            found.append(_record_roles(roles, turns, module, reads or {}))

    module = Simulation(text, num_sms=1, change=_set_turns, run_program=run_program)
    module[name](*args)
    return found[0]


@dataclass
class Programs:
    """What each role does, and how many arrivals end a phase of each barrier."""

    roles: list[list[Op]] = field(default_factory=list)
    counts: dict[Place, int] = field(default_factory=dict)


def _record_roles(
    roles: list[Role], turns: Sequence[int], module: Simulation, reads: Reads
) -> Programs:
    """The role that copies first: it says which barriers belong to which buffers."""
    shared = _Shared(dict(getgeneratorlocals(roles[0])), len(roles) - 1, turns, reads)
    made = Programs()
    for number, role in reversed(list(enumerate(roles))):
        pieces = iter(turns)
        module.names["Turns"] = lambda pieces=pieces: next(pieces)
        made.roles.append(list(_Recorder(number, shared).record(role)))
    # A turn that is whole for one group's rows may be cleared by another, which changes nothing.
    _, first, *others = [[op[0] for op in role if op[0] != "clear"] for role in made.roles]
    assert all(first == other for other in others)
    made.counts = shared.counts
    return made


@dataclass
class _Shared:
    """What the recorders of all roles know."""

    names: Mapping[str, Any]
    groups: int
    turns: Sequence[int]
    reads: Reads
    counts: dict[Place, int] = field(default_factory=dict)
    barriers: dict[str, str] = field(default_factory=dict)
    """The barriers that tell of a buffer's tiles, by name."""

    def is_own(self, buffer: str) -> bool:
        """Whether each group has a buffer of its own in each slot."""
        slots = len(self.names[self.barriers[buffer]].items)
        return self.groups > 1 and len(self.names[buffer].items) > slots

    def tile_read(self, buffer: str, number: int, *, is_load: bool = False) -> int:
        """Which tile a group's product must find, of all products with that buffer.

        ``is_load``: threads read it, and a kept tile once for all turns.
        """
        if buffer in self.reads:
            return self.reads[buffer][number]
        if is_load or not self.barriers[buffer].startswith("kept"):
            return number
        return [piece for piece, turns in enumerate(self.turns) for _ in range(turns)][number]


class _Recorder:
    """Runs one role alone, with tiles of nothing in particular."""

    def __init__(self, number: int, shared: _Shared) -> None:
        self._number, self._shared = number, shared
        self._copied: Counter[str] = Counter()
        self._reads: Counter[str] = Counter()
        self._products: list[list[Place]] = []
        self._stores: list[Place] = []

    def record(self, role: Role) -> Iterator[Op]:
        result: Any = None
        while True:
            try:
                action = role.send(result)
            except StopIteration:
                return
            method = getattr(self, f"_{action.name.rpartition('.')[2].removeprefix('_')}")
            ops, result = method(action)
            yield from ops

    def _barrier(self, barrier: Barrier) -> Place:
        place = (barrier.name, barrier.slot)
        self._shared.counts[place] = barrier.count
        return place

    def _wait(self, action: Action) -> tuple[list[Op], None]:
        barrier, parity = action.args
        return [("wait", self._barrier(barrier), parity)], None

    def _arrive(self, action: Action) -> tuple[list[Op], None]:
        return [("arrive", self._barrier(action.args[0]))], None

    def _expect(self, action: Action) -> tuple[list[Op], None]:
        return [("expect", self._barrier(action.args[0]))], None

    def _async_copy_global_to_shared(self, action: Action) -> tuple[list[Op], None]:
        _, _, barrier, view = action.args
        name, slot = view.buffer.name, view.buffer.slot
        self._shared.barriers[name] = barrier.name
        number, each = self._copied[name], self._shared.groups if self._shared.is_own(name) else 1
        self._copied[name] += 1
        label = (number // each, number % each if each > 1 else -1)
        return [("copy", (name, slot), label, self._barrier(barrier))], None

    def _warpgroup_mma(self, action: Action) -> tuple[list[Op], Any]:
        views = [arg for arg in action.args[:2] if isinstance(arg, View)]
        places = [(view.buffer.name, view.buffer.slot) for view in views]
        self._products.append(places)
        return [("read", place, self._label(place[0])) for place in places], action.args[2]

    def _label(self, buffer: str, *, is_load: bool = False) -> Label:
        tile = self._shared.tile_read(buffer, self._reads[buffer], is_load=is_load)
        self._reads[buffer] += 1
        return tile, self._number if self._shared.is_own(buffer) else -1

    def _warpgroup_mma_wait(self, action: Action) -> tuple[list[Op], Any]:
        left, values = action.args
        done = max(0, len(self._products) - left)
        places = [place for product in self._products[:done] for place in product]
        del self._products[:done]
        return [("done", tuple(places))], values[0] if len(values) == 1 else tuple(values)

    def _load(self, action: Action) -> tuple[list[Op], torch.Tensor]:
        view = action.args[0]
        place = (view.buffer.name, view.buffer.slot)
        label = self._label(place[0], is_load=True)
        return [("read", place, label), ("done", (place,))], view.tile

    def _clear_rest(self, action: Action) -> tuple[list[Op], None]:
        """All groups write the same, so that others may read meanwhile."""
        name, slot = action.args[0].buffer.name, action.args[0].buffer.slot
        tile = self._shared.tile_read(name, self._reads[name])
        return [("clear", (name, slot), (tile, -1))], None

    def _store(self, action: Action) -> tuple[list[Op], None]:
        buffer = action.args[0].buffer
        return [("write", (buffer.name, buffer.slot))], None

    def _fence_async_shared(self, _: Action) -> tuple[list[Op], None]:
        return [], None

    def _async_copy_shared_to_global(self, action: Action) -> tuple[list[Op], None]:
        buffer = action.args[2].buffer
        self._stores.append((buffer.name, buffer.slot))
        return [("read", self._stores[-1], "written")], None

    def _store_wait(self, action: Action) -> tuple[list[Op], None]:
        done = max(0, len(self._stores) - action.args[0])
        places, self._stores = tuple(self._stores[:done]), self._stores[done:]
        return [("done", places)], None


@dataclass(frozen=True)
class State:
    """Where roles are, which copies are under way, and what follows from both."""

    positions: tuple[int, ...]
    flights: frozenset[int]
    """Copies under way, by the number of the operation that announced them."""
    barriers: Mapping[Place, tuple[int, int, int]]
    """Completed phases, arrivals, copies that are waited for."""
    contents: Mapping[Place, Any]
    readers: Mapping[Place, int]
    num_programs: int = 1

    @property
    def key(self) -> tuple[Any, ...]:
        """Groups run one program with different buffers, so it does not matter which is where."""
        each = len(self.positions) // self.num_programs
        starts = range(0, len(self.positions), each)
        groups = [tuple(sorted(self.positions[start + 1 : start + each])) for start in starts]
        return tuple(self.positions[start] for start in starts), tuple(groups), self.flights


FILLING = "being filled"


class Explorer:
    """Every order in which roles can run and copies can arrive.

    Others notice nothing between two waits of a role, so it goes from one wait to the next at
    once; waits for products count, since reads last until then. ``is_fine`` stops everywhere.
    """

    num_programs = 1

    def __init__(self, programs: Programs, *, is_fine: bool = False) -> None:
        self._counts = programs.counts
        self._roles = [list(_blocks(role, is_fine)) for role in programs.roles]
        self._copies: dict[int, list[Op]] = {}
        self._expected: dict[int, Place] = {}
        announced = -1
        for role in self._roles:
            for number, op in ((number, op) for block in role for number, op in block):
                if op[0] == "expect":
                    announced = number
                    self._expected[number] = op[1]
                elif op[0] == "copy":
                    assert op[3] == self._expected[announced]
                    self._copies.setdefault(announced, []).append(op)

    def explore(self) -> int:
        """How many states there are; ProtocolError where one is wrong."""
        start = State(
            tuple(0 for _ in self._roles),
            frozenset(),
            dict.fromkeys(self._counts, (0, 0, 0)),
            {},
            {},
            self.num_programs,
        )
        seen, pending = {start.key}, [start]
        while pending:
            state = pending.pop()
            following = list(self._following(state))
            if not following:
                self._check_end(state)
            for other in following:
                if other.key not in seen:
                    seen.add(other.key)
                    pending.append(other)
        return len(seen)

    def _following(self, state: State) -> Iterator[State]:
        for role, position in enumerate(state.positions):
            if position < len(self._roles[role]):
                made = self._run(state, role, self._roles[role][position])
                if made is not None:
                    yield made
        for flight in state.flights:
            yield self._land(state, flight)

    def _check_end(self, state: State) -> None:
        if any(position < len(role) for position, role in zip(state.positions, self._roles)):
            raise ProtocolError("roles wait for ever")
        if any(arrived for _, arrived, _ in state.barriers.values()):
            raise ProtocolError("a phase is not complete at the end")
        if any(state.readers.values()):
            raise ProtocolError("a role ends with work in flight")

    def _run(self, state: State, role: int, block: list[tuple[int, Op]]) -> State | None:
        running = self._start(state)
        for number, op in block:
            if not getattr(running, op[0])(number, *op[1:]):
                return None
        positions = list(state.positions)
        positions[role] += 1
        return running.state(tuple(positions))

    def _start(self, state: State) -> _Running:
        return _Running(state, self._counts, self._copies)

    def _land(self, state: State, flight: int) -> State:
        running = self._start(state)
        for _, place, label, _ in self._copies[flight]:
            if running.readers.get(place):
                raise ProtocolError(f"a copy arrives in {place} while a product reads it")
            running.contents[place] = label
        running.flights.discard(flight)
        running.add(self._expected[flight], 0, -1)
        return running.state(state.positions)


def _blocks(ops: Sequence[Op], is_fine: bool) -> Iterator[list[tuple[int, Op]]]:
    """Operations in the order of the program, cut before waits."""
    block: list[tuple[int, Op]] = []
    for number, op in enumerate(ops):
        if block and (is_fine or op[0] in ("wait", "done")):
            yield block
            block = []
        block.append((number, op))
    if block:
        yield block


class _Running:
    """One step from a state; operations say whether they can be done now."""

    def __init__(
        self, state: State, counts: Mapping[Place, int], copies: Mapping[int, list[Op]]
    ) -> None:
        self._counts, self._copies, self._num = counts, copies, state.num_programs
        self.flights = set(state.flights)
        self.barriers = dict(state.barriers)
        self.contents = dict(state.contents)
        self.readers = dict(state.readers)

    def state(self, positions: tuple[int, ...]) -> State:
        found = self.barriers, self.contents, self.readers
        return State(positions, frozenset(self.flights), *found, self._num)

    def add(self, barrier: Place, arrivals: int, copies: int) -> None:
        completed, arrived, open_copies = self.barriers[barrier]
        arrived, open_copies = arrived + arrivals, open_copies + copies
        if arrived > self._counts[barrier]:
            raise ProtocolError(f"{barrier} has an arrival too many")
        if arrived == self._counts[barrier] and not open_copies:
            completed, arrived = completed + 1, 0
        self.barriers[barrier] = completed, arrived, open_copies

    def wait(self, _: int, barrier: Place, parity: int) -> bool:
        return self.barriers[barrier][0] & 1 != parity

    def arrive(self, _: int, barrier: Place) -> bool:
        self.add(barrier, 1, 0)
        return True

    def expect(self, number: int, barrier: Place) -> bool:
        self.add(barrier, 1, 1)
        return True

    def copy(self, number: int, place: Place, label: Label, _: Place) -> bool:
        if self.readers.get(place) or self.contents.get(place) == FILLING:
            raise ProtocolError(f"a copy into {place}, which is in use")
        self.contents[place] = FILLING
        announced = max(event for event in self._copies if event < number)
        if self._copies[announced][-1][1:3] == (place, label):
            self.flights.add(announced)
        return True

    def read(self, _: int, place: Place, label: Any) -> bool:
        if self.contents.get(place) != label:
            raise ProtocolError(f"{place} holds {self.contents.get(place)}, not {label}")
        self.readers[place] = self.readers.get(place, 0) + 1
        return True

    def clear(self, _: int, place: Place, label: Label) -> bool:
        if self.contents.get(place) != label:
            raise ProtocolError(f"{place} holds {self.contents.get(place)}, not {label}")
        return True

    def done(self, _: int, places: Sequence[Place]) -> bool:
        for place in places:
            self.readers[place] -= 1
        return True

    def write(self, _: int, place: Place) -> bool:
        if self.readers.get(place) or self.contents.get(place) == FILLING:
            raise ProtocolError(f"a store into {place}, which is in use")
        self.contents[place] = "written"
        return True
