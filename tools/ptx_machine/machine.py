"""Takes lanes through a kernel, in groups that stand at the same instruction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import numpy as np

from tools.ptx_machine import access, arrivals, bulk, copies, ordinary, warpgroups, warps
from tools.ptx_machine.kinds import KINDS, Lanes
from tools.ptx_machine.state import WARP, Launch, Read, State, Step, read_as
from tools.ptx_machine.text import Instruction, Kernel, PtxError
from tools.ptx_machine.watch import Blind, make_watch
from tools.ptx_machine.words import FREE, check_words

MOST_LANES = 1 << 16
"""So many run together unless programs wait for each other."""
MOST_TURNS = 400
"""Backward branches of a group while others could run, before they do; also how often the lowest
group is chosen before all others go on: it may wait in a loop with barriers."""
MOST_STEPS = 30_000_000
CLUSTER = -1
"""Number of the barrier of a cluster."""


@dataclass
class Group:
    """Lanes at one instruction. Lower ranks go first."""

    place: int
    mask: Lanes
    rank: int = 0
    is_held: bool = False
    """Whether lanes of their warps must come first."""


Rest = tuple[int, Lanes | None] | None
"""Where lanes of a group go on, and which; None if none do."""
DECODERS: dict[str, Callable[[Instruction], Step]] = {
    "mov": ordinary.decode_move,
    "setp": ordinary.decode_compare,
    "selp": ordinary.decode_select,
    "cvt": ordinary.decode_convert,
    "ld": access.decode_load,
    "st": access.decode_store,
    "atom": access.decode_atomic,
    "red": access.decode_atomic,
    "cvta": access.decode_address,
    "mapa": access.decode_remote_address,
    "cp": copies.decode_copy,
    "createpolicy": access.decode_policy,
    "shfl": warps.decode_shuffle,
    "vote": warps.decode_vote,
    "redux": warps.decode_warp_reduction,
    "elect": warps.decode_election,
    "ldmatrix": warps.decode_matrix_load,
    "stmatrix": warps.decode_matrix_store,
    "mma": warps.decode_product,
    "mbarrier": arrivals.decode_barrier,
    "wgmma": warpgroups.decode_group_product,
}
CONTROL = ("bra", "brx", "ret", "exit", "bar", "barrier", "trap")


def decode(instruction: Instruction) -> Step | arrivals.Wait | None:
    """What an instruction does; None where the machine itself sees to it."""
    name = instruction.parts[0]
    check_words(instruction)
    if name == "mbarrier" and instruction.parts[1] in ("try_wait", "test_wait"):
        return arrivals.decode_wait(instruction)
    if ordinary.has_carry(instruction):
        return ordinary.decode_carry(instruction)
    if name in CONTROL:
        return None
    if name in FREE:
        return lambda state, mask: None
    if name in DECODERS:
        return DECODERS[name](instruction)
    if instruction.parts[-1] == "pred" and name in ("and", "or", "xor", "not"):
        return ordinary.decode_predicate(instruction)
    return ordinary.decode_compute(instruction)


def _unwatched(step: Step) -> Step:
    """The same, while nobody looks on."""

    def run_unseen(state: State, mask: Lanes | None) -> None:
        watch, state.extra["watch"] = state.extra["watch"], Blind()
        try:
            step(state, mask)
        finally:
            state.extra["watch"] = watch

    return run_unseen


class Program:
    """A kernel with a step for each instruction; decoded once for all launches.

    ``harmless`` are source lines whose loads may race: what they load is not used where another
    warp may have stored.
    """

    def __init__(self, kernel: Kernel, harmless: frozenset[str] = frozenset()) -> None:
        self.kernel = kernel
        self.steps: list[Step | arrivals.Wait | None] = []
        self.guards: list[Read | None] = []
        for instruction in kernel.instructions:
            try:
                step = decode(instruction)
                is_harmless = instruction.line in harmless and instruction.parts[0] == "ld"
                if is_harmless and step is not None and not isinstance(step, arrivals.Wait):
                    step = _unwatched(step)
                self.steps.append(step)
            except PtxError as error:
                raise PtxError(
                    f"line {instruction.number}, {instruction.opcode}: {error}"
                ) from error
            guard = instruction.guard
            self.guards.append(None if guard is None else read_as(guard, KINDS["pred"]))


def run(
    program: Program,
    launch: Launch,
    *,
    order: str = "together",
    seed: int = 0,
    late: bool = True,
    sees: bool = True,
) -> None:
    """All programs of a launch.

    ``order`` says how warps go on between barriers: "together" by instruction, "apart" one warp
    after the other, in an order drawn by ``seed``.
    """
    count = int(np.prod(launch.grid))
    most = max(MOST_LANES // launch.num_threads, launch.cluster)
    most -= most % launch.cluster
    clusters = list(range(count // launch.cluster))
    if order == "apart":
        Random(seed).shuffle(clusters)
    ranks = range(launch.cluster)
    numbers = [cluster * launch.cluster + rank for cluster in clusters for rank in ranks]
    waits = _waits_for_others(program.kernel)
    for first in range(0, count, count if waits else most):
        chosen = numbers[first : first + (count if waits else most)]
        with np.errstate(all="ignore"):
            state = State(program.kernel, launch, chosen, extra={"late": late, "sees": sees})
            _Run(program, state, order, seed).run()


def _waits_for_others(kernel: Kernel) -> bool:
    """Whether a program may wait for what another one stores."""
    return any("acquire" in x.parts or x.parts[0] == "fence" for x in kernel.instructions)


class _Run:
    """Programs that run together."""

    def __init__(self, program: Program, state: State, order: str, seed: int) -> None:
        self._program, self._state = program, state
        self._kernel = program.kernel
        self._groups = self._first_groups(order, Random(seed))
        self._resume = np.zeros(state.count, np.int64)
        self._rank = np.zeros(state.count, np.int64)
        for group in self._groups:
            self._rank[group.mask] = group.rank
        self._arrived: dict[int, Lanes] = {}
        self._waiting: dict[int, Lanes] = {}
        self._turns = 0
        self._steps = 0
        self._parked: list[Group] = []
        """Lanes at a wait for a barrier in memory."""
        self._seen = -1
        """How many phases had ended when those were last looked at."""
        # Warps of several programs of a cluster would have to know of each other.
        sees = state.extra["sees"] and state.launch.cluster == 1
        state.extra["watch"] = make_watch(
            len(state.programs), state.launch.num_threads, state.shared, sees=sees
        )

    def _first_groups(self, order: str, random: Random) -> list[Group]:
        state = self._state
        if order == "together":
            return [Group(0, np.ones(state.count, np.bool_))]
        count = state.launch.num_threads // WARP
        ranks = random.sample(range(count), count)
        warp = state.thread // WARP
        return [Group(0, warp == number, rank) for number, rank in enumerate(ranks)]

    def run(self) -> None:
        chosen = 0
        while self._groups or self._wake():
            chosen += 1
            self._groups.sort(key=lambda group: (group.rank, group.place))
            self._merge()
            free = next((n for n, x in enumerate(self._groups) if not x.is_held), None)
            if free is None:
                if not self._wake():
                    raise PtxError(self._stuck())
                continue
            self._turns = 0
            group = self._groups.pop(free)
            self._run_group(group) if chosen % MOST_TURNS else self._let_others_pass(group)
        bulk.finish(self._state)
        if self._parked or any(waiting.any() for waiting in self._waiting.values()):
            raise PtxError(self._stuck())

    def _wake(self) -> bool:
        """Let lanes look again at barriers in memory, if any phase has ended."""
        barriers = arrivals.barriers_of(self._state)
        if self._parked and barriers.changes == self._seen:
            bulk.deliver(self._state, set(self._state.extra.get("pending", ())))
        if not self._parked or barriers.changes == self._seen:
            return False
        self._seen = barriers.changes
        self._groups += self._parked
        self._parked = []
        return True

    def _wait(
        self, wait: arrivals.Wait, place: int, chosen: Lanes | None, mask: Lanes | None, rank: int
    ) -> Rest:
        """Lanes whose phase has ended go on, the others wait."""
        state = self._state
        left = _without(state, mask, chosen)
        lanes, done = wait.find(state, chosen)
        if not done.all() and bulk.deliver(state, wait.wanted(state, chosen)):
            lanes, done = wait.find(state, chosen)
        if not done.all():
            parked = np.zeros(state.count, np.bool_)
            parked[lanes[~done]] = True
            self._parked.append(Group(place, parked, rank))
        ready = np.zeros(state.count, np.bool_)
        ready[lanes[done]] = True
        state.write(wait.slot, np.array(True), ready)
        state.extra["watch"].waited(wait.place.find(state, lanes[done], 8)[1], lanes[done])
        if left is not None:
            ready |= left
        return (place + 1, ready) if ready.any() else None

    def _merge(self) -> None:
        merged: list[Group] = []
        for group in self._groups:
            last = merged[-1] if merged else None
            if last and (last.place, last.rank) == (group.place, group.rank):
                last.mask, last.is_held = last.mask | group.mask, False
            else:
                merged.append(group)
        self._groups = merged

    def _stuck(self) -> str:
        places = {int(p) for mask in self._waiting.values() for p in self._resume[mask]}
        places |= {group.place + 1 for group in [*self._parked, *self._groups]}
        lines = sorted(self._kernel.instructions[p - 1].number for p in places)
        return f"threads wait for others that have ended, at lines {lines} of the text"

    def _next_place(self, rank: int) -> int:
        """Where the next group of the same rank stands: this one may not pass it.

        It may pass those that are held, since it may be what they wait for.
        """
        own = [x.place for x in self._groups if x.rank == rank and not x.is_held]
        return min(own, default=len(self._kernel.instructions) + 1)

    def _run_group(self, group: Group) -> None:
        place, rank = group.place, group.rank
        mask: Lanes | None = None if group.mask.all() else group.mask
        known, limit = -1, 0
        while place < len(self._program.steps):
            if known != len(self._groups):
                known, limit = len(self._groups), self._next_place(rank)
            if place >= limit:
                self._groups.append(Group(place, _full(self._state, mask), rank))
                return
            rest = self._advance(place, mask, rank)
            if rest is None:
                return
            place, mask = rest

    def _advance(self, place: int, mask: Lanes | None, rank: int) -> Rest:
        """Do one instruction: where which lanes go on, if any do."""
        self._steps += 1
        if self._steps > MOST_STEPS:
            raise PtxError(f"more than {MOST_STEPS} instructions")
        step, guard = self._program.steps[place], self._program.guards[place]
        chosen, is_none = mask, False
        if guard is not None:
            chosen, is_none = _guarded(self._state, guard, mask)
        if is_none:
            return place + 1, mask
        try:
            if isinstance(step, arrivals.Wait):
                return self._wait(step, place, chosen, mask, rank)
            if step is None:
                return self._control(place, chosen, mask, rank)
            step(self._state, chosen)
        except warps.PartOfWarpError:
            return self._hold(place, mask, rank)
        except PtxError as error:
            raise PtxError(self._told(place, str(error))) from error
        return place + 1, mask

    def _hold(self, place: int, mask: Lanes | None, rank: int) -> Rest:
        """Let parts of warps wait for their other lanes; whole warps go on."""
        full = _full(self._state, mask)
        whole = full & warps.whole_warps(full)
        self._groups.append(Group(place, full & ~whole, rank, is_held=True))
        return (place, whole) if whole.any() else None

    def _told(self, place: int, problem: str) -> str:
        instruction = self._kernel.instructions[place]
        return (
            f"line {instruction.number} ({instruction.opcode}), source line "
            f"{instruction.line}: {problem}"
        )

    def _control(self, place: int, chosen: Lanes | None, mask: Lanes | None, rank: int) -> Rest:
        """A branch, an end or a barrier: where the group goes on with which lanes, if it does."""
        instruction = self._kernel.instructions[place]
        name = instruction.parts[0]
        state = self._state
        left = _without(state, mask, chosen)
        if name == "trap":
            raise PtxError("trap")
        if name in ("ret", "exit"):
            if left is not None:
                return place + 1, left
            return None
        if name == "brx":
            return self._branch_by_index(instruction, place, _full(state, chosen), rank)
        if name == "bra":
            return self._branch(place, chosen, left, rank)
        if left is not None:
            self._groups.append(Group(place + 1, left, rank))
        return self._barrier(instruction, place, chosen)

    def _branch(self, place: int, chosen: Lanes | None, left: Lanes | None, rank: int) -> Rest:
        target = self._kernel.targets[place][0]
        if left is not None:
            self._groups.append(Group(place + 1, left, rank))
        if target <= place:
            self._turns += 1
        if self._groups and (left is not None or self._turns > MOST_TURNS):
            if self._turns > MOST_TURNS:
                # It may wait for lanes that stand behind: they go on first.
                group = Group(target, _full(self._state, chosen), rank)
                self._let_others_pass(group)
                return None
            self._groups.append(Group(target, _full(self._state, chosen), rank))
            return None
        return target, chosen

    def _branch_by_index(
        self, instruction: Instruction, place: int, mask: Lanes, rank: int
    ) -> None:
        index = read_as(instruction.operands[0], KINDS["u32"])(self._state)
        for number, target in enumerate(self._kernel.targets[place]):
            here = mask & (index == number)
            if here.any():
                self._groups.append(Group(target, here, rank))

    def _let_others_pass(self, group: Group) -> None:
        others, self._groups = self._groups, []
        for other in sorted(others, key=lambda x: (x.rank, x.place)):
            self._turns = 0
            self._run_group(other)
        self._groups.append(group)

    def _barrier(self, instruction: Instruction, place: int, chosen: Lanes | None) -> Rest:
        """``bar.sync``, ``bar.warp.sync`` and arrivals that wait for nobody."""
        state, parts = self._state, instruction.parts
        if "warp" in parts:
            warps.check_whole(chosen, "bar.warp.sync")
            return place + 1, chosen
        mask = _full(state, chosen)
        if "cluster" in parts:
            return self._wait_for_cluster(place, mask, is_wait="wait" in parts)
        number, needed = self._barrier_operands(instruction, mask)
        arrived = self._arrived.setdefault(number, np.zeros(len(state.programs), np.int64))
        watch = state.extra["watch"]
        watch.arrive(watch.pairs(np.flatnonzero(mask)), number)
        arrived += np.bincount(state.slot[mask], minlength=len(state.programs))
        if "arrive" not in parts:
            waiting = self._waiting.setdefault(number, np.zeros(state.count, np.bool_))
            waiting |= mask
            self._resume[mask] = place + 1
        self._release(number, needed)
        return (place + 1, chosen) if "arrive" in parts else None

    def _wait_for_cluster(self, place: int, mask: Lanes, *, is_wait: bool) -> Rest:
        """Threads of all programs of a cluster meet; arriving without waiting means nothing yet."""
        if not is_wait:
            return place + 1, mask
        state, cluster = self._state, self._state.launch.cluster
        waiting = self._waiting.setdefault(CLUSTER, np.zeros(state.count, np.bool_))
        waiting |= mask
        self._resume[mask] = place + 1
        threads = cluster * state.launch.num_threads
        complete = waiting.reshape(-1, threads).all(1)
        self._free(CLUSTER, waiting & np.repeat(complete, threads))
        return None

    def _barrier_operands(self, instruction: Instruction, mask: Lanes) -> tuple[int, int]:
        state, values = self._state, [0, self._state.launch.num_threads]
        for place, operand in enumerate(instruction.operands):
            found = np.broadcast_to(read_as(operand, KINDS["u32"])(state), (state.count,))[mask]
            if np.any(found != found[0]):
                raise PtxError("several barriers in one instruction")
            values[place] = int(found[0])
        return values[0], values[1]

    def _release(self, number: int, needed: int) -> None:
        """Let lanes of programs go where enough have come."""
        state, arrived = self._state, self._arrived[number]
        complete = arrived >= needed
        if not complete.any():
            return
        arrived[complete] = 0
        freed = self._waiting[number] & complete[state.slot]
        state.extra["watch"].meet(complete, number, freed)
        self._free(number, freed)

    def _free(self, number: int, freed: Lanes) -> None:
        self._waiting[number] &= ~freed
        for place in np.unique(self._resume[freed]):
            here = freed & (self._resume == place)
            for rank in np.unique(self._rank[here]):
                self._groups.append(Group(int(place), here & (self._rank == rank), int(rank)))


def _full(state: State, mask: Lanes | None) -> Lanes:
    return np.ones(state.count, np.bool_) if mask is None else mask


def _without(state: State, mask: Lanes | None, chosen: Lanes | None) -> Lanes | None:
    """Lanes of a mask that are not chosen; None if there are none."""
    if chosen is None:
        return None
    left = _full(state, mask) & ~chosen
    return left if left.any() else None


def _guarded(state: State, guard: Read, mask: Lanes | None) -> tuple[Lanes | None, bool]:
    """The lanes whose predicate holds, and whether there are none."""
    holds = guard(state)
    if mask is not None:
        holds = holds & mask
        return (mask, False) if holds.sum() == mask.sum() else (holds, not holds.any())
    if holds.all():
        return None, False
    return holds, not holds.any()
