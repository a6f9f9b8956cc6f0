"""Turns, and a model of launches whose programs wait for each other: when can they, for ever?"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial

import pytest

from tilesmith.interpreter.schedules.turns import Turns, WaitsForEver
from tilesmith.ir.ops.control_flow import LEAST_SMS_FOR_GROUPS, MOST_IN_GROUP

POLICIES: dict[str, Callable[[], Callable[[Sequence[int]], int]]] = {
    "oldest": lambda: lambda ready: ready[0],
    "newest": lambda: lambda ready: ready[-1],
    "random": lambda: random.Random(5).choice,
}
policies = pytest.mark.parametrize("policy", POLICIES)


class Model:
    """Programs that arrive at barriers, and go on when all of their group are there."""

    def __init__(self) -> None:
        self.turns: Turns
        self.counts: dict[str, int] = {}
        self.tickets: dict[str, int] = {}

    def run(self, programs: Sequence[Callable[[], None]], num_resident: int, policy: str) -> None:
        self.turns = Turns(programs, num_resident, POLICIES[policy]())
        self.turns.run()

    def meet(self, place: str, arrivals: int) -> None:
        self.turns.pause()
        self.counts[place] = self.counts.get(place, 0) + 1
        self.turns.note_change()
        self.turns.wait(lambda: self.counts[place] >= arrivals, f"{place} lacks arrivals")

    def by_ticket(self, launch: str, group: int, num_barriers: int) -> None:
        """A program of a form that exchanges parts: numbered by when it begins."""
        number = self.tickets.get(launch, 0)
        self.tickets[launch] = number + 1
        for barrier in range(1, num_barriers + 1):
            self.meet(f"{launch} {number // group}", barrier * group)

    def by_place(self, number: int, group: int) -> None:
        """The same, numbered by where it was launched: hardware promises no order."""
        self.meet(f"group {number // group}", group)


@policies
def test_all_run_to_their_end(policy: str):
    model, done = Model(), list[int]()

    def program(number: int) -> None:
        for _ in range(number % 4):
            model.turns.pause()
        done.append(number)

    model.run([partial(program, number) for number in range(20)], 3, policy)
    assert sorted(done) == list(range(20))


def test_the_seed_decides_who_is_next():
    def order(seed: int) -> list[int]:
        model, seen = Model(), list[int]()

        def program(number: int) -> None:
            for _ in range(3):
                model.turns.pause()
                seen.append(number)

        model.turns = Turns([partial(program, n) for n in range(6)], 4, random.Random(seed).choice)
        model.turns.run()
        return seen

    assert order(1) == order(1)
    assert order(1) != order(2)


def test_an_error_of_one_ends_all():
    model = Model()

    def wrong() -> None:
        model.turns.pause()
        raise KeyError("mine")

    waiting = partial(model.meet, "place", 5)
    with pytest.raises(KeyError, match="mine"):
        model.run([waiting, waiting, wrong], 3, "oldest")


def test_asking_again_and_again_is_waiting_for_ever():
    model = Model()

    def spin() -> None:
        while "never" not in model.counts:
            model.turns.pause()

    with pytest.raises(WaitsForEver, match="again and again"):
        model.run([spin, spin], 2, "random")


@policies
@pytest.mark.parametrize("num_barriers", [1, 2])
@pytest.mark.parametrize("group", [1, 3, MOST_IN_GROUP])
def test_tickets_need_room_for_one_group(group: int, num_barriers: int, policy: str):
    """A grid of any size ends where a group fits; with room for one less it does not."""
    programs = 3 * group
    model = Model()
    model.run([partial(model.by_ticket, "a", group, num_barriers)] * programs, group, policy)
    if group > 1:
        narrow = Model()
        with pytest.raises(WaitsForEver, match="lacks arrivals"):
            narrow.run([partial(narrow.by_ticket, "a", group, 1)] * programs, group - 1, policy)


def test_without_tickets_an_unlucky_order_hangs():
    """One program of each group at first: all wait, and nobody can begin."""
    model, group, groups = Model(), 4, 8
    unlucky = sorted(range(group * groups), key=lambda number: number % group)
    with pytest.raises(WaitsForEver, match="24 have not begun"):
        model.run([partial(model.by_place, n, group) for n in unlucky], groups, "oldest")


@policies
def test_so_many_launches_at_once_have_room(policy: str):
    """Of each launch all groups but one are whole: less than a group of each waits for others.

    A device with the fewest multiprocessors that such a launch accepts has room for two at once,
    one program on each; that of an H200, with 132, for four.
    """
    for num_sms, launches in ((LEAST_SMS_FOR_GROUPS, 2), (132, 4)):
        assert launches * (MOST_IN_GROUP - 1) < num_sms
        model = Model()
        names = [f"launch {number % launches}" for number in range(2 * launches * MOST_IN_GROUP)]
        programs = [partial(model.by_ticket, name, MOST_IN_GROUP, 1) for name in names]
        model.run(programs, num_sms, policy)


def test_more_launches_at_once_can_hang():
    """What docs/decisions/0018 says is not promised, seen in the model."""
    model = Model()
    names = [f"launch {number % 5}" for number in range(5 * MOST_IN_GROUP)]
    programs = [partial(model.by_ticket, name, MOST_IN_GROUP, 1) for name in names]
    with pytest.raises(WaitsForEver):
        model.run(programs, 132, "oldest")


@policies
def test_a_barrier_of_all_needs_all_resident(policy: str):
    """Why such launches are persistent and cooperative: the driver refuses what would hang."""

    def persistent(model: Model, count: int) -> None:
        for barrier in (1, 2, 3):
            model.meet("all", barrier * count)

    model = Model()
    model.run([partial(persistent, model, 16)] * 16, 16, policy)
    crowded = Model()
    with pytest.raises(WaitsForEver):
        crowded.run([partial(persistent, crowded, 17)] * 17, 16, policy)
