"""Timing of right candidates: samples, their order, restored memory, limits of time."""

from __future__ import annotations

import time

import pytest
import torch

from tests.tune.runner.cases import histogram_case, in_place_case, matmul_case
from tilesmith.lab.processes.channel import LastReply
from tilesmith.lab.workload.loading import Workload
from tilesmith.measure import timer
from tilesmith.measure.disturbance import Reading
from tilesmith.store.outcome import Verdict
from tilesmith.tune.jobs import CheckJob, ForgetJob, TimeJob
from tilesmith.tune.runner import launching as timing
from tilesmith.tune.runner import state
from tilesmith.tune.runner.launching import LaunchPlace, TimedWork, make_launch, time_works
from tilesmith.tune.runner.state import RunnerState

HERE = LaunchPlace(torch.device("cpu"), None)  # type: ignore[arg-type]


def timed(seconds: float, log: list[str] | None = None, name: str = "") -> TimedWork:
    def run() -> None:
        if log is not None:
            log.append(name)
        time.sleep(seconds)

    return TimedWork(run, None, seconds * 1e3)


def test_samples_come_in_the_order_of_the_keys():
    job = TimeJob(("slow", "fast", "slow"), repeats=4)
    # Far apart: on a busy machine a sleep of 1 ms has taken 5 ms four times in a row.
    reply = time_works([timed(0.06), timed(0.001), timed(0.06)], job, HERE)
    assert [len(samples) for samples in reply.samples_ms] == [4, 4, 4]
    slow, fast, again = (min(samples) for samples in reply.samples_ms)
    assert 1.0 <= fast < slow
    assert min(slow, again) >= 60.0


@pytest.mark.parametrize(
    ("waits_s", "expected"),
    [
        ((0.0, 0.0, 0.0), False),
        # The median is still a time of the program's own.
        ((60.0, 0.0, 0.0), False),
        ((60.0, 0.0, 60.0), True),
        ((60.0, 60.0, 60.0), True),
    ],
)
def test_a_measurement_is_disturbed_if_half_of_its_samples_waited(waits_s, expected, monkeypatch):
    before = Reading(0.0, 0.0, {"main": 1.0})
    after = [Reading(100.0, 40.0, {"main": 1.0 + waited}) for waited in waits_s]
    readings = [reading for last in after for reading in (before, last)]
    monkeypatch.setattr(timing, "read_meter", lambda: readings.pop(0))
    reply = time_works([timed(0.001)], TimeJob(("a",), repeats=len(waits_s)), HERE)
    assert reply.is_disturbed is expected
    assert not readings


def test_rounds_are_interleaved():
    log: list[str] = []
    works = [timed(0.001, log, name) for name in "abc"]
    time_works(works, TimeJob(("a", "b", "c"), repeats=2), HERE)
    assert "".join(log).endswith("abccba")


def test_a_job_ends_at_its_limit_with_the_samples_it_has():
    start = time.perf_counter()
    job = TimeJob(("a",), repeats=1000, time_limit_s=0.2)
    reply = time_works([timed(0.03)], job, HERE)
    assert time.perf_counter() - start < 10.0
    assert 1 <= len(reply.samples_ms[0]) < 10


def test_a_single_call_longer_than_the_limit_gives_one_sample():
    log: list[str] = []
    job = TimeJob(("a",), repeats=10, time_limit_s=0.01)
    reply = time_works([timed(0.05, log, "a")], job, HERE)
    assert len(reply.samples_ms[0]) == 1
    assert len(log) <= 2


def test_short_calls_are_batched_and_each_starts_from_the_restored_state(monkeypatch):
    # A machine with a small cache would clear it before each call instead.
    monkeypatch.setattr(timing, "_host_flush", lambda: None)
    memory = {"value": 0}
    seen: list[int] = []

    def run() -> None:
        seen.append(memory["value"])
        memory["value"] += 1

    def restore() -> None:
        memory["value"] = 0

    reply = time_works([TimedWork(run, restore)], TimeJob(("a",), repeats=3), HERE)
    assert len(seen) > 30
    assert set(seen) == {0}
    assert min(reply.samples_ms[0]) < 0.2


def test_restoring_is_not_timed():
    work = TimedWork(lambda: None, lambda: time.sleep(0.01), 100.0)
    job = TimeJob(("a",), repeats=2, time_limit_s=0.2)
    reply = time_works([work], job, HERE)
    assert min(reply.samples_ms[0]) < 5.0


def test_a_cheap_cache_is_cleared_before_each_call(monkeypatch):
    flushes: list[str] = []
    monkeypatch.setattr(timing, "_host_flush", lambda: lambda: flushes.append("flush"))
    time_works([timed(0.001)], TimeJob(("a",), repeats=3), HERE)
    assert len(flushes) == 4


def test_a_shared_cache_is_too_large_to_be_cleared(monkeypatch):
    for size, is_cleared in ((1 << 20, True), (260 << 20, False), (0, False)):
        monkeypatch.setattr(timing, "last_level_bytes", lambda folder, size=size: size)
        timing._host_flush.cache_clear()
        assert (timing._host_flush() is not None) is is_cleared
    timing._host_flush.cache_clear()


@pytest.mark.parametrize("make", [in_place_case, histogram_case])
def test_after_many_timings_memory_holds_what_one_run_gives(make, tmp_path):
    case = make(tmp_path)
    runner = RunnerState()
    runner.handle(case.prepare_job(reference=None))
    program = case.program()
    assert runner.handle(CheckJob(program)).verdict is Verdict.OK
    reply = runner.handle(TimeJob((program.key,) * 2, repeats=3))
    assert all(sample > 0.0 for samples in reply.samples_ms for sample in samples)
    assert runner._checker is not None
    result = runner._checker.workload.outputs(program.binding)[case.result]
    torch.testing.assert_close(result.double(), case.expected.double(), rtol=1e-6, atol=1e-6)


def test_without_restoring_repeated_runs_would_show(tmp_path):
    case = in_place_case(tmp_path)
    program = case.program()
    workload = Workload.load(case.workload, "cpu")
    place = LaunchPlace(torch.device("cpu"), tmp_path)
    launch = make_launch(program, workload.arguments(program.binding), place)
    launch.run()
    launch.run()
    result = workload.outputs(program.binding)[case.result]
    assert not torch.allclose(result.double(), case.expected)


def test_only_checked_programs_can_be_timed(tmp_path):
    case = matmul_case(tmp_path)
    runner = RunnerState()
    with pytest.raises(ValueError, match="before a workload"):
        runner.handle(TimeJob(("a",), repeats=1))
    runner.handle(case.prepare_job(reference=None))
    with pytest.raises(KeyError, match="not checked"):
        runner.handle(TimeJob(("a",), repeats=1))
    runner.handle(CheckJob(case.program("a")))
    runner.handle(TimeJob(("a",), repeats=1))
    runner.handle(ForgetJob(("a", "never seen")))
    with pytest.raises(KeyError, match="not checked"):
        runner.handle(TimeJob(("a",), repeats=1))


def test_a_device_lost_while_timing_ends_the_process_after_the_reply(tmp_path, monkeypatch):
    case = matmul_case(tmp_path)
    runner = RunnerState()
    runner.handle(case.prepare_job(reference=None))
    runner.handle(CheckJob(case.program("a")))

    def fail(*args):
        raise RuntimeError("CUDA error: unspecified launch failure")

    monkeypatch.setattr(state, "time_works", fail)
    with pytest.raises(RuntimeError, match="launch failure"):
        runner.handle(TimeJob(("a",), repeats=1))
    monkeypatch.setattr(state, "is_device_lost", lambda place: True)
    reply = runner.handle(TimeJob(("a",), repeats=1))
    assert isinstance(reply, LastReply)
    assert "unspecified launch failure" in reply.reply.reason
    with pytest.raises(SystemExit, match="the device is lost"):
        runner.handle(case.prepare_job())


class FakeEvents:
    """Stands in for the parts of torch.cuda that the device timer uses."""

    def __init__(self, log: list[str]) -> None:
        self._log = log

    def __getattr__(self, name: str) -> object:
        return lambda *args, **kwargs: None

    def Event(self, enable_timing: bool) -> FakeEvent:  # noqa: N802
        return FakeEvent(self._log)


class FakeEvent:
    def __init__(self, log: list[str]) -> None:
        self._log = log

    def record(self) -> None:
        self._log.append("|")

    def elapsed_time(self, end: FakeEvent) -> float:
        return 1.0


@pytest.mark.parametrize(("is_warm", "expected"), [(False, "pf|w|"), (True, "pfwp|w|")])
def test_on_a_device_memory_is_put_back_before_the_cache_is_cleared(monkeypatch, is_warm, expected):
    log: list[str] = []
    monkeypatch.setattr(timer.torch, "cuda", FakeEvents(log))

    class Buffer:
        def zero_(self) -> None:
            log.append("f")

    conditions = timer.Conditions({"a": lambda: log.append("p")}, is_warm)
    clock = timer._EventClock({"a": lambda: log.append("w")}, conditions, Buffer())  # type: ignore[arg-type]
    timings = clock.time(2, timer._Limit(time.perf_counter(), 60.0))
    assert "".join(log) == expected * 2
    assert timings["a"].samples_ms == (1.0, 1.0)


def test_on_a_device_rounds_that_do_not_fit_are_left_out(monkeypatch):
    log: list[str] = []
    monkeypatch.setattr(timer.torch, "cuda", FakeEvents(log))
    clock = timer._EventClock({"a": lambda: time.sleep(0.02)}, timer.PLAIN, torch.empty(1))
    timings = clock.time(100, timer._Limit(time.perf_counter(), 0.1))
    assert 1 <= len(timings["a"].samples_ms) <= 5
