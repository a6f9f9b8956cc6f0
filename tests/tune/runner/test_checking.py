"""Verdicts on real native code, right and spoilt."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.tune.runner.cases import CASES, Case, in_place_case, matmul_case, with_llvm
from tests.tune.runner.faulty_runner import AT_ONCE, spoil
from tilesmith.lab.workload.loading import Workload
from tilesmith.store.outcome import Verdict
from tilesmith.tune.jobs import CheckJob
from tilesmith.tune.runner import state
from tilesmith.tune.runner.launching import LaunchPlace, make_launch
from tilesmith.tune.runner.state import Checker, is_device_lost


def make_checker(case: Case, folder: Path, *, may_differ: bool = False) -> Checker:
    """A checker whose judge compares with the case's own fp64 result."""
    workload = Workload.load(case.workload, "cpu")

    def judge(job: CheckJob) -> str:
        result = workload.outputs(job.program.binding)[case.result]
        is_close = torch.allclose(result.double(), case.expected.double(), 1e-4, 1e-4)
        return "" if is_close else "not the expected values"

    place = LaunchPlace(torch.device("cpu"), folder, num_threads=1)
    return Checker(workload, place, judge, may_differ=may_differ)


@pytest.fixture
def spoilt(monkeypatch):
    """Makes every launch misbehave in a chosen way."""

    def install(fault: str) -> None:
        def faulty(program, values, place):
            launch = make_launch(program, values, place)
            if fault in AT_ONCE:
                return replace(launch, run=AT_ONCE[fault])
            return spoil(launch, values, program.artifact, fault)

        monkeypatch.setattr(state, "make_launch", faulty)

    return install


@pytest.mark.parametrize("name", CASES)
def test_right_code_passes_and_is_ready_to_be_timed(name, tmp_path):
    case = CASES[name](tmp_path)
    checked = make_checker(case, tmp_path, may_differ=name == "float sum").check(
        CheckJob(case.program())
    )
    assert checked.reply.verdict is Verdict.OK, checked.reply.reason
    assert checked.launch is not None
    assert 0.0 < checked.reply.first_ms < 1000.0


@pytest.mark.parametrize("name", ["softmax", "in place"])
def test_code_with_another_operation_is_wrong(name, tmp_path):
    case = CASES[name](tmp_path)
    program = with_llvm(case.program(), " fadd ", " fsub ")
    checked = make_checker(case, tmp_path).check(CheckJob(program))
    assert checked.reply.verdict is Verdict.WRONG
    assert checked.reply.reason == "not the expected values"
    assert checked.launch is None


def test_swapped_arguments_are_wrong(tmp_path):
    case = matmul_case(tmp_path)
    program = case.program()
    bound = dict(program.binding.arguments)
    swapped = {**bound, "x": bound["y"], "y": bound["x"]}
    program = replace(program, binding=replace(program.binding, arguments=tuple(swapped.items())))
    assert make_checker(case, tmp_path).check(CheckJob(program)).reply.verdict is Verdict.WRONG


def test_what_an_earlier_candidate_left_behind_helps_no_other(tmp_path, spoilt):
    case = matmul_case(tmp_path)
    checker = make_checker(case, tmp_path)
    assert checker.check(CheckJob(case.program())).reply.verdict is Verdict.OK
    spoilt("incomplete")
    assert checker.check(CheckJob(case.program("second"))).reply.verdict is Verdict.WRONG


def test_bits_that_change_between_runs_are_noticed(tmp_path, spoilt):
    case = matmul_case(tmp_path)
    spoilt("nondeterministic")
    reply = make_checker(case, tmp_path).check(CheckJob(case.program())).reply
    assert reply.verdict is Verdict.NONDETERMINISTIC
    assert reply.reason.startswith(
        "two runs differ in 1 of 4225 elements of `out`, first at [0, 0]"
    )


def test_bits_may_change_where_the_order_of_atomics_decides_them(tmp_path, spoilt):
    case = matmul_case(tmp_path)
    spoilt("nondeterministic")
    checker = make_checker(case, tmp_path, may_differ=True)
    assert checker.check(CheckJob(case.program())).reply.verdict is Verdict.OK


def test_a_second_run_that_is_wrong_is_wrong_even_where_bits_may_change(tmp_path, monkeypatch):
    case = matmul_case(tmp_path)
    counts = iter(range(10))

    def fails_once_more(program, values, place):
        launch = make_launch(program, values, place)
        worse = spoil(launch, values, program.artifact, "wrong")

        def run() -> None:
            (worse if next(counts) else launch).run()

        return replace(launch, run=run)

    monkeypatch.setattr(state, "make_launch", fails_once_more)
    checker = make_checker(case, tmp_path, may_differ=True)
    assert checker.check(CheckJob(case.program())).reply.verdict is Verdict.WRONG


def test_memory_that_is_read_and_written_starts_from_its_first_state_each_time(tmp_path):
    case = in_place_case(tmp_path)
    checker = make_checker(case, tmp_path)
    for _ in range(3):
        assert checker.check(CheckJob(case.program())).reply.verdict is Verdict.OK


@pytest.mark.parametrize(
    ("fault", "verdict", "text"),
    [
        ("out_of_memory", Verdict.OUT_OF_MEMORY, "7.00 GiB"),
        ("out_of_resources", Verdict.OUT_OF_RESOURCES, "too many resources"),
        ("exception", Verdict.RUN_ERROR, "ValueError: an exception of the fault injection"),
    ],
)
def test_exceptions_become_verdicts(tmp_path, spoilt, fault, verdict, text):
    case = matmul_case(tmp_path)
    spoilt(fault)
    checked = make_checker(case, tmp_path).check(CheckJob(case.program()))
    assert checked.reply.verdict is verdict
    assert text in checked.reply.reason
    assert not checked.is_device_lost


class LostDevice(LaunchPlace):
    """A place whose device has had a fault: every further call raises."""

    @property
    def is_asynchronous(self) -> bool:
        return True

    def synchronize(self) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")


def test_after_a_fault_of_the_device_the_candidate_has_crashed_it(tmp_path):
    case = matmul_case(tmp_path)
    workload = Workload.load(case.workload, "cpu")
    place = LostDevice(torch.device("cpu"), tmp_path)
    checked = Checker(workload, place, lambda job: "").check(CheckJob(case.program()))
    assert checked.is_device_lost
    assert checked.reply.verdict is Verdict.CRASHED
    assert "illegal memory access" in checked.reply.reason


def test_a_cpu_is_not_lost(tmp_path):
    assert not is_device_lost(LaunchPlace(torch.device("cpu"), tmp_path))
