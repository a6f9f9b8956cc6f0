"""A row whose process hung or died says what it was doing, and for how long."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest
import torch

import tilesmith
from tests.bench.hanging_suite import NAME as HANGING
from tests.bench.hanging_suite import suite as hanging_suite
from tests.bench.test_trial import make_trial
from tests.bench.tiny_suite import NAME, double, double_operator, suite
from tilesmith.bench.case import Input
from tilesmith.bench.job_rows import Progress, Stage, blank_row, died
from tilesmith.bench.plan import Options, make_plan
from tilesmith.bench.reference import make_arguments
from tilesmith.bench.row import Cause, Row, Status
from tilesmith.bench.run import run_plan
from tilesmith.bench.trial import ObservedTuner, Trial
from tilesmith.jit.tuner import TuneRequest
from tilesmith.lab.processes.channel import ChildDied, ChildTimeout
from tilesmith.schedule.config import Config
from tilesmith.tune.result import StopReason, TuneResult

TIMEOUT_S = 2.0
"""Three processes hang for so long."""


def any_row() -> Row:
    return blank_row(make_plan(suite(), Options(suite=NAME, device="cpu"))[0])


def test_a_hang_says_in_which_stage_and_for_how_long() -> None:
    options = Options(
        suite=HANGING,
        only=("by_hand",),
        metrics=("latency",),
        device="cpu",
        timeout_s=TIMEOUT_S,
    )
    inputs, calls = run_plan(make_plan(hanging_suite(), options), options)
    assert (inputs.status, inputs.cause) == (Status.HARNESS_FAILED, Cause.HANG)
    assert inputs.stage == "making the arguments"
    assert inputs.reason.startswith("no answer within 2 s while making the arguments (")
    assert "accuracy not checked: no answer within 2 s while working out" in inputs.reason
    assert (calls.status, calls.cause) == (Status.FAILED, Cause.HANG)
    assert calls.stage == "calling it a second time"
    assert "in hangs_the_second_time" in calls.reason
    for row in (inputs, calls):
        assert row.stage_s is not None
        assert 0.0 < row.stage_s < TIMEOUT_S + 2.0


@pytest.mark.parametrize(
    ("stage", "is_hang", "status"),
    [
        (Stage.START, False, Status.HARNESS_FAILED),
        (Stage.PREPARE, True, Status.HARNESS_FAILED),
        (Stage.BUILD, True, Status.FAILED),
        (Stage.TUNE, True, Status.FAILED),
        (Stage.JUDGE, True, Status.HARNESS_FAILED),
        (Stage.JUDGE, False, Status.FAILED),
        (Stage.MEASURE, True, Status.FAILED),
    ],
)
def test_who_is_to_blame_depends_on_the_stage(stage: Stage, is_hang: bool, status: Status) -> None:
    failure = ChildTimeout(8.0, "tail") if is_hang else ChildDied(-11, "tail")
    row = died(Progress(stage, any_row(), began=100.0), failure, 102.25)
    assert (row.status, row.stage, row.stage_s) == (status, stage.value, 2.25)
    first, last = row.reason.splitlines()
    assert first.endswith(f" while {stage.value} (2.2 s)")
    assert last == "  tail"


def test_progress_is_read_as_it_was_left(tmp_path) -> None:
    path, left = tmp_path / "progress.json", Progress(Stage.TUNE, any_row(), began=7.5)
    left.save(path)
    assert Progress.load(path, any_row(), 1.0) == left
    path.write_text('{"stage": "')
    assert Progress.load(path, any_row(), 1.0) == Progress(Stage.START, any_row(), began=1.0)


def watched_trial(
    function: Callable[..., object],
    announce: Callable[[Stage, Row], object],
    monkeypatch: pytest.MonkeyPatch,
) -> Trial:
    trial = make_trial(function, monkeypatch=monkeypatch)
    monkeypatch.setattr(trial, "announce", announce)
    return trial


def test_stages_are_announced_before_they_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    stages: list[Stage] = []
    during: list[Stage] = []

    def double(x: torch.Tensor) -> torch.Tensor:
        during.append(stages[-1])
        return x * 2

    trial = watched_trial(double, lambda stage, row: stages.append(stage), monkeypatch)
    for step in (trial.check, trial.try_baseline, trial.measure):
        assert step().status is Status.OK
    assert stages == [Stage.BUILD, Stage.CALL, Stage.JUDGE, Stage.BASELINE, Stage.MEASURE]
    assert list(dict.fromkeys(during)) == [Stage.BUILD, Stage.CALL, Stage.MEASURE]


def test_a_search_is_a_stage_of_its_own() -> None:
    stages: list[Stage] = []

    class Searching:
        def tune(self, bound: object, args: object, request: TuneRequest) -> None:
            assert stages == [Stage.TUNE]
            assert request.on_end is not None
            request.on_end(TuneResult(Config(), StopReason.FINISHED, num_tried=7))

    kernel = tilesmith.kernel(double.fn)
    kernel.definition.tuner = cast("Any", Searching())
    tuner = ObservedTuner(1.0, announce=stages.append)
    tuner.observe(kernel.definition)
    bound = kernel.bind((torch.ones(4),))
    bound.definition.find_tuner().tune(bound, (torch.ones(4),), TuneRequest())
    assert stages == [Stage.TUNE, Stage.BUILD]
    assert tuner.facts()["num_configs"] == 7


def test_a_stage_that_cannot_be_announced_is_the_harnesss_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(stage: Stage, row: Row) -> None:
        if stage is Stage.CALL:
            raise OSError("No space left on device")

    row = watched_trial(lambda x: x * 2, full, monkeypatch).check()
    assert row.status is Status.HARNESS_FAILED
    assert "No space left on device" in row.reason


def test_arguments_that_are_no_tuple_are_named() -> None:
    job = make_plan(suite(), Options(suite=NAME, device="cpu"))[0]
    five: Any = Input("five", lambda device, dtype: cast("Any", 5))
    operator = replace(double_operator(), inputs=[five])
    with pytest.raises(TypeError, match=r"make\(\) of input five returned int, expected a tuple"):
        make_arguments(operator, job)
