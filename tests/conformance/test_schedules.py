"""Conformance cases with their programs interleaved: results hold in any order, and none races."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest

from tests.conformance.all_cases import CASES
from tests.conformance.case import Case
from tests.host_backends import on_backend
from tilesmith.interpreter.frame import prepare_function
from tilesmith.interpreter.schedules.scheduled import Schedule, scheduled
from tilesmith.ir.ops.control_flow import GridBarrier
from tilesmith.ir.ops.memory import Atomic
from tilesmith.ir.traversal import walk_function

SCHEDULES = [Schedule(1), Schedule(2, num_resident=2), Schedule(3, "newest", is_fine=True)]


@pytest.mark.full
@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_small_tiles(case: Case, schedule: Schedule, monkeypatch: pytest.MonkeyPatch) -> None:
    run(case, schedule, monkeypatch)


MEETING = [
    case
    for case in CASES
    if case.kernel.fn.__module__.endswith(("atomic_kernels", "barrier_kernels"))
]


@pytest.mark.parametrize("case", MEETING, ids=str)
def test_programs_that_meet(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    for schedule in SCHEDULES:
        run(case, schedule, monkeypatch)


def test_those_meet() -> None:
    meeting = 0
    for case in MEETING:
        function = on_backend(case.kernel, "reference").bind(case.make_args()).function
        meeting += any(isinstance(op, (Atomic, GridBarrier)) for op in walk_function(function))
    assert meeting == len(MEETING) > 5


def run(case: Case, schedule: Schedule, monkeypatch: pytest.MonkeyPatch) -> None:
    def prepare(function: Any, *, races: bool) -> Any:
        assert races
        return scheduled(prepare_function(function), schedule)

    monkeypatch.setattr(import_module("tilesmith.jit.launchers"), "prepare_run", prepare)
    args = case.make_args()
    kernel: Any = on_backend(case.kernel, "reference", check=True)
    kernel.reset()
    case.check(kernel.bind(args).compile_config(case.config)(*args))
