"""Idle processes are handed out once, to whoever would start the same, and never forgotten."""

from __future__ import annotations

import os
import sys

import pytest

from tests.lab.processes.living import eventually
from tilesmith.lab.processes.build_pool import IdleProcesses, start_parameters


class Idle:
    """A process that does nothing."""

    def __init__(self) -> None:
        self.is_ready = True
        self.num_closed = 0

    def close(self) -> None:
        self.num_closed += 1
        self.is_ready = False


ORIGIN = start_parameters("runner", ("module", 1), {"A": "1"})


@pytest.fixture
def standby():
    made = IdleProcesses(patience_s=30.0)
    yield made
    made.close()


def test_a_parked_process_is_handed_out_once(standby):
    process = Idle()
    standby.park(ORIGIN, process)
    assert standby.take(ORIGIN) is process
    assert standby.take(ORIGIN) is None
    assert process.num_closed == 0


def test_several_of_one_origin_are_all_kept(standby):
    processes = {Idle(), Idle(), Idle()}
    for process in processes:
        standby.park(ORIGIN, process)
    assert {standby.take(ORIGIN) for _ in processes} == processes


def test_one_that_was_started_otherwise_is_ended_instead(standby):
    runner, builder = Idle(), Idle()
    standby.park(ORIGIN, runner)
    standby.park(start_parameters("builder", ("module", 1), {"A": "1"}), builder)
    assert standby.take(start_parameters("runner", ("module", 2), {"A": "1"})) is None
    assert (runner.num_closed, builder.num_closed) == (1, 0)


def test_origins_differ_with_whatever_a_new_process_would_see(monkeypatch):
    def now(value: str = "1"):
        return start_parameters("runner", ("module", 1), {"A": value})

    first = now()
    assert now() == first
    assert now("2") != first
    with monkeypatch.context() as changed:
        changed.setenv("CUDA_VISIBLE_DEVICES", "17")
        assert now() != first
    monkeypatch.setattr(sys, "path", [*sys.path, "/elsewhere"])
    assert now() != first


def test_one_that_died_meanwhile_is_not_handed_out(standby):
    process = Idle()
    standby.park(ORIGIN, process)
    process.is_ready = False
    assert standby.take(ORIGIN) is None
    assert process.num_closed == 1


def test_nothing_is_kept_for_longer_than_its_time():
    standby, process = IdleProcesses(patience_s=0.05), Idle()
    standby.park(ORIGIN, process)
    assert eventually(lambda: process.num_closed == 1)
    assert standby.take(ORIGIN) is None
    standby.patience_s = 0.0
    other = Idle()
    standby.park(ORIGIN, other)
    assert other.num_closed == 1


def test_a_process_that_does_not_answer_is_not_parked(standby):
    process = Idle()
    process.is_ready = False
    standby.park(ORIGIN, process)
    assert process.num_closed == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fork_leaves_its_parents_processes_alone(standby):
    process = Idle()
    standby.park(ORIGIN, process)
    pid = os.fork()
    if pid == 0:
        is_right = standby.take(ORIGIN) is None and process.num_closed == 0
        os._exit(0 if is_right else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert standby.take(ORIGIN) is process
