"""Forms whose programs share rows, under schedules: the same bits, no race, nobody waits for ever.

Each with room for one group and no more, and with room for all.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.passes.test_exchanged_parts import exchanged
from tests.passes.test_shared_rows import CASES, Case, sizes_of
from tests.passes.test_split_rows import FAMILY, complete, function_of, split
from tilesmith.exc import ProgramsWaitForever, RaceDetected
from tilesmith.interpreter.frame import prepare_function
from tilesmith.interpreter.run import run_prepared
from tilesmith.interpreter.schedules.scheduled import Schedule, scheduled
from tilesmith.ir.function import Function
from tilesmith.ir.ops.control_flow import Grid, GroupBarrier
from tilesmith.ir.ops.memory import Atomic
from tilesmith.ir.traversal import walk_function
from tilesmith.passes.split_rows import Form

ROWS, LENGTH = 5, 37
ROW, PART = 2, 16
IN_GROUP = 3
"""Programs that share a row: parts of 16 in rows of 37."""
QUICK = [Schedule(0, num_resident=IN_GROUP), Schedule(1, "newest", is_fine=True)]
MORE = [
    Schedule(seed, policy, num_resident, is_fine=is_fine)
    for seed in range(4)
    for policy in ("random", "oldest", "newest")
    for num_resident in (IN_GROUP, IN_GROUP + 1, 1000)
    for is_fine in (False, True)
]
schedules = pytest.mark.parametrize(
    "chosen", [QUICK, pytest.param(MORE, marks=pytest.mark.full)], ids=["quick", "more"]
)


def run(
    function: Function, named: dict[str, Any], sizes: dict[str, int], schedule: Schedule
) -> dict[str, torch.Tensor]:
    given = {
        name: value.clone() if isinstance(value, torch.Tensor) else value
        for name, value in complete(function, named).items()
    }
    prepared = scheduled(prepare_function(function), schedule)
    run_prepared(prepared, given, sizes, races=True)
    return {name: value for name, value in given.items() if isinstance(value, torch.Tensor)}


def prepare(case: Case, form: Form) -> tuple[Function, dict[str, Any], dict[str, torch.Tensor]]:
    kernel, make, reference = case
    named = make(ROWS, LENGTH)
    function = split(function_of(kernel, tuple(named.values())), form)
    exact = reference(*named.values())
    if "logits" in named:
        named["flat"] = named["logits"].reshape(-1)
    return function, named, exact


@schedules
@pytest.mark.parametrize(
    ("name", "case", "form"), CASES, ids=[f"{c[0]}-{c[2].name}" for c in CASES]
)
def test_shared_rows(name: str, case: Case, form: Form, chosen: list[Schedule]):
    function, named, exact = prepare(case, form)
    first: dict[str, torch.Tensor] = {}
    for schedule in chosen:
        found = run(function, named, sizes_of(function, ROW, PART), schedule)
        for result, expected in exact.items():
            torch.testing.assert_close(found[result].double(), expected, rtol=2e-5, atol=2e-5)
            assert torch.equal(found[result], first.setdefault(result, found[result]))


@schedules
@pytest.mark.parametrize("name", FAMILY)
def test_rows_of_products(name: str, chosen: list[Schedule]):
    kernel, _, make = FAMILY[name]
    named = make(7, 9, LENGTH)
    function, sizes = exchanged(kernel, named), {"tile_m": 4, "tile_k": 8, "columns": PART}
    first: dict[str, torch.Tensor] = {}
    for schedule in chosen:
        found = run(function, named, sizes, schedule)
        assert torch.equal(found["out"], first.setdefault("out", found["out"]))
        assert found["out"].isfinite().all()


def with_ops(function: Function, change: Any) -> Function:
    """The function with ops at the top of its grids replaced; None drops one."""

    def grid_of(op: Any) -> Any:
        if not isinstance(op, Grid):
            return op
        ops = tuple(new for new in map(change, op.body.ops) if new is not None)
        return replace(op, body=replace(op.body, ops=ops))

    body = replace(function.body, ops=tuple(map(grid_of, function.body.ops)))
    return replace(function, body=body)


SHARED = {f"{name}-{form.name}": (case, form) for name, case, form in CASES}


@pytest.mark.parametrize("name", [name for name in SHARED if name.endswith("PARTS")])
def test_parts_counted_without_an_order_are_a_race(name: str):
    function, named, _ = prepare(*SHARED[name])
    wrong = with_ops(
        function, lambda op: replace(op, order="relaxed") if isinstance(op, Atomic) else op
    )
    assert any(isinstance(op, Atomic) and op.acquires for op in walk_function(function))
    with pytest.raises(RaceDetected):
        run(wrong, named, sizes_of(function, ROW, PART), Schedule(2))


@pytest.mark.parametrize("name", [name for name in SHARED if name.endswith("EXCHANGE")])
def test_exchanges_that_nobody_waits_for_are_a_race(name: str):
    function, named, _ = prepare(*SHARED[name])
    wrong = with_ops(function, lambda op: None if isinstance(op, GroupBarrier) else op)
    with pytest.raises(RaceDetected):
        run(wrong, named, sizes_of(function, ROW, PART), Schedule(2))


@pytest.mark.parametrize("name", [name for name in SHARED if name.endswith("EXCHANGE")])
def test_exchanges_with_too_little_room_are_seen_to_wait(name: str):
    function, named, _ = prepare(*SHARED[name])
    with pytest.raises(ProgramsWaitForever):
        run(function, named, sizes_of(function, ROW, PART), Schedule(2, num_resident=IN_GROUP - 1))
