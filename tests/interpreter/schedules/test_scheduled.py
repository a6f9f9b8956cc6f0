"""Programs interleaved at atomics and barriers: what is right stays right, what races is seen."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch

from tests.interpreter.run_text import build, over_tiles
from tests.interpreter.test_group_barriers import (
    BLOCKS,
    COLUMNS,
    GROUPS,
    PART,
    SHIFTED,
    TOTAL,
    arguments,
    in_grid,
)
from tests.interpreter.test_races import two_grids
from tilesmith.exc import ProgramsWaitForever, RaceDetected
from tilesmith.interpreter.frame import prepare_function
from tilesmith.interpreter.run import Argument, run_prepared
from tilesmith.interpreter.schedules.scheduled import POLICIES, Schedule, scheduled

SEEDS = range(6)
ALL = [
    Schedule(seed, policy, num_resident, is_fine=is_fine)
    for seed, policy in enumerate(POLICIES)
    for num_resident in (1, 3, 1000)
    for is_fine in (False, True)
]
every_schedule = pytest.mark.parametrize("schedule", ALL, ids=str)


def run(
    body: str,
    given: Mapping[str, Argument],
    blocks: Mapping[str, int],
    schedule: Schedule,
    *,
    races: bool = True,
) -> None:
    prepared = scheduled(prepare_function(build(body, given, blocks)), schedule)
    run_prepared(prepared, given, blocks, races=races)


COUNTED = over_tiles(
    """
    %n = full() {value=1} : i32[]
    %before = atomic(%count, %n, none, [%zero]) {kind="add"} : i32[]
    %place = cast(%before) : i64[]
    store(%order, %begin, none, [%place])""",
    8,
)


@every_schedule
def test_each_program_gets_a_number_of_its_own(schedule: Schedule):
    given = {"count": torch.zeros(1, dtype=torch.int32), "order": torch.zeros(8, dtype=torch.int64)}
    run(COUNTED, given, {"m": 1}, schedule)
    assert sorted(given["order"].tolist()) == list(range(8))


def test_programs_begin_in_any_order():
    seen: set[tuple[int, ...]] = set()
    for seed in SEEDS:
        order = torch.zeros(8, dtype=torch.int64)
        given = {"count": torch.zeros(1, dtype=torch.int32), "order": order}
        run(COUNTED, given, {"m": 1}, Schedule(seed))
        seen.add(tuple(order.tolist()))
    assert len(seen) == len(SEEDS)


LAST = """
    %v = load(%x, none, [%i]) : f32[m]
    store(%part, %v, none, [%i])
    %n = full() {value=1} : i32[]
    %before = atomic(%count, %n, none, [%zero]) {kind="add", order="ORDER"} : i32[]
    %last = full() {value=3} : i32[]
    %is_last = elementwise(%before, %last) {fn="eq"} : bool[]
    %all = arange() : i64[8]
    %p = load(%part, %is_last, [%all]) : f32[8]
    %s = reduce(%p) {axis=0, kind="sum"} : f32[]
    store(%out, %s, %is_last, [%zero])"""


def by_last(order: str, schedule: Schedule) -> float:
    given = {
        "x": torch.arange(8.0),
        "part": torch.full((8,), torch.nan),
        "count": torch.zeros(1, dtype=torch.int32),
        "out": torch.zeros(1),
    }
    run(over_tiles(LAST.replace("ORDER", order), 8), given, {"m": 2}, schedule)
    return given["out"].item()


@every_schedule
def test_the_last_program_sees_what_all_have_stored(schedule: Schedule):
    assert by_last("acq_rel", schedule) == 28.0


@pytest.mark.parametrize("order", ["relaxed", "acquire", "release"])
@pytest.mark.parametrize("seed", SEEDS)
def test_half_an_order_is_a_race(order: str, seed: int):
    """The detector of ordinary runs takes ``acquire`` alone for enough."""
    with pytest.raises(RaceDetected, match="race on `part`"):
        by_last(order, Schedule(seed))


@pytest.mark.parametrize("is_ordered", [True, False])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_lock_orders_those_who_take_it(is_ordered: bool, seed: int):
    """Read, add one and write back inside a lock: nothing is lost; with a relaxed one it races."""
    taking, leaving = ("acquire", "release") if is_ordered else ("relaxed", "relaxed")
    body = over_tiles(
        f"""
    %off = full() {{value=0}} : i32[]
    %on = full() {{value=1}} : i32[]
    %got = while(%on) : i32[] (%state: i32[]) {{
      %is_on = elementwise(%state, %on) {{fn="eq"}} : bool[]
      yield(%is_on)
    }} (%again: i32[]) {{
      %was = atomic(%lock, %on, none, [%zero]) {{kind="xchg", order="{taking}"}} : i32[]
      yield(%was)
    }}
    %v = load(%total, none, [%zero]) : f32[]
    %unit = full() {{value=1.0}} : f32[]
    %w = elementwise(%v, %unit) {{fn="add"}} : f32[]
    store(%total, %w, none, [%zero])
    %old = atomic(%lock, %off, none, [%zero]) {{kind="xchg", order="{leaving}"}} : i32[]""",
        6,
    )
    given = {"lock": torch.zeros(1, dtype=torch.int32), "total": torch.zeros(1)}
    schedule = Schedule(seed, is_fine=True)
    if is_ordered:
        run(body, given, {"m": 1}, schedule)
        assert given["total"].item() == 6.0
    else:
        with pytest.raises(RaceDetected, match="race on `total`"):
            run(body, given, {"m": 1}, schedule)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_barrier_between_grids_orders_them(seed: int):
    given = {"x": torch.zeros(8), "out": torch.zeros(8)}
    run(two_grids("grid_barrier()"), given, {"m": 2}, Schedule(seed, is_fine=True))
    assert given["out"].tolist() == [1.0] * 8
    with pytest.raises(RaceDetected, match="race on `x`"):
        run(two_grids(""), given, {"m": 2}, Schedule(seed, is_fine=True))


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("num_resident", [COLUMNS, COLUMNS + 2, 1000])
def test_groups_meet_where_one_has_room(policy: str, num_resident: int):
    for seed in SEEDS:
        given = arguments()
        schedule = Schedule(seed, policy, num_resident, is_fine=seed % 2 == 0)
        run(in_grid(PART, TOTAL + SHIFTED), given, BLOCKS, schedule)
        torch.testing.assert_close(given["out"], given["x"] + given["x"].sum(1, keepdim=True))
        assert given["counts"].tolist() == [*[COLUMNS] * GROUPS, 0]


def test_groups_without_room_are_seen_to_wait():
    with pytest.raises(ProgramsWaitForever, match=r"waits for 3 at counts\[0\]"):
        run(in_grid(PART, TOTAL + SHIFTED), arguments(), BLOCKS, Schedule(0, "oldest", COLUMNS - 1))


@pytest.mark.parametrize("seed", SEEDS)
def test_without_tickets_some_orders_hang(seed: int):
    """Room for a group does not help if programs of several groups begin first."""
    schedule = Schedule(seed, num_resident=COLUMNS, has_tickets=False)
    with pytest.raises(ProgramsWaitForever):
        run(in_grid(PART, TOTAL + SHIFTED), arguments(), BLOCKS, schedule)


def test_too_many_arrivals_to_wait_for_are_seen():
    body = in_grid(PART, TOTAL + SHIFTED, arrivals=COLUMNS + 1)
    with pytest.raises(ProgramsWaitForever, match="waits for 4"):
        run(body, arguments(), BLOCKS, Schedule())


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("flaw", ["no barrier", "one arrival too few", "another group's place"])
def test_a_barrier_that_does_not_hold_is_a_race(flaw: str, seed: int):
    body = {
        "no barrier": in_grid(PART + TOTAL + SHIFTED),
        "one arrival too few": in_grid(PART, TOTAL + SHIFTED, arrivals=COLUMNS - 1),
        "another group's place": in_grid(PART, TOTAL + SHIFTED, place="%zero"),
    }[flaw]
    with pytest.raises(RaceDetected):
        run(body, arguments(), BLOCKS, Schedule(seed, is_fine=True))
