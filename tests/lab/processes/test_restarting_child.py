"""A runner that died is replaced by one that is prepared in the same way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.processes.living import PLAYFUL, eventually
from tilesmith.lab.processes.channel import ChildDied, ChildTimeout, ChildUnavailable, ErrorReply
from tilesmith.lab.processes.child import RestartingChild

STATEFUL = "tests.lab.processes.children.stateful"


@pytest.fixture
def runner() -> Iterator[RestartingChild]:
    with RestartingChild(STATEFUL, is_bare=True) as client:
        yield client


def test_a_preparation_is_repeated_after_a_death(runner: RestartingChild):
    runner.prepare(("prepare", ("x", 1, None)), 5.0)
    runner.prepare(("prepare", ("x", 3, None)), 5.0)
    with pytest.raises(ChildDied, match="exit code 7"):
        runner.request(("die", None), 5.0)
    assert runner.request(("state", None), 5.0) == {"x": 3}
    assert runner.num_starts == 2


def test_a_preparation_is_repeated_after_a_hang(runner: RestartingChild):
    runner.prepare(("prepare", ("x", 1, None)), 5.0)
    with pytest.raises(ChildTimeout):
        runner.request(("sleep", 60.0), 0.1)
    assert runner.request(("state", None), 5.0) == {"x": 1}


def test_the_successor_starts_while_the_caller_goes_on(runner: RestartingChild):
    with pytest.raises(ChildDied):
        runner.request(("die", None), 5.0)
    assert runner.is_alive
    assert not runner.is_ready
    assert eventually(lambda: runner.poll(0.0) is None and runner.is_ready), "nobody has asked yet"


def test_a_preparation_that_fails_is_not_repeated():
    with RestartingChild(PLAYFUL, is_bare=True) as runner:
        assert isinstance(runner.prepare(("fail", "no"), 5.0), ErrorReply)
        with pytest.raises(ChildDied):
            runner.prepare(("leave", 1), 5.0)
        assert runner.request(("echo", 1), 5.0) == 1


def test_a_runner_that_cannot_be_prepared_again_is_not_the_fault_of_the_job(
    runner: RestartingChild, tmp_path: Path
):
    poison = tmp_path / "poison"
    runner.prepare(("prepare", ("x", 1, str(poison))), 5.0)
    poison.touch()
    with pytest.raises(ChildDied, match="exit code 7"):
        runner.request(("die", None), 5.0)
    with pytest.raises(ChildUnavailable, match="exit code 5"):
        runner.request(("state", None), 5.0)
    poison.unlink()
    assert runner.request(("state", None), 5.0) == {"x": 1}


def test_a_runner_that_cannot_start_is_not_the_fault_of_the_job():
    with (
        RestartingChild("tests.lab.processes.children.broken_import", is_bare=True) as runner,
        pytest.raises(ChildUnavailable, match="no such compiler"),
    ):
        runner.request(("state", None), 5.0)


def test_the_last_reply_of_a_runner_is_followed_by_a_new_process():
    with RestartingChild(PLAYFUL, is_bare=True) as runner:
        assert runner.request(("last", 5), 5.0) == 5
        assert runner.request(("echo", 6), 5.0) == 6
        assert runner.num_starts == 2


def test_a_job_sent_ahead_is_done_before_anyone_waits(runner: RestartingChild):
    job = ("prepare", ("x", 1, None))
    runner.send_ahead(job)
    assert runner.prepare(job, 5.0) == 1
    assert runner.request(("state", None), 5.0) == {"x": 1}
    assert runner.num_starts == 1


def test_a_job_sent_ahead_to_a_process_that_died_is_sent_again(runner: RestartingChild):
    job = ("prepare", ("x", 1, None))
    runner.send_ahead(job)
    runner.kill()
    assert runner.prepare(job, 5.0) == 1
    assert runner.num_starts == 2


def test_the_reply_to_a_job_sent_ahead_is_not_taken_for_that_of_another(runner: RestartingChild):
    runner.send_ahead(("prepare", ("x", 1, None)))
    with pytest.raises(ValueError, match="another job was sent ahead"):
        runner.request(("state", None), 5.0)
    assert runner.request(("state", None), 5.0) == {}


def test_a_preparation_can_be_forgotten(runner: RestartingChild):
    runner.prepare(("prepare", ("x", 1, None)), 5.0)
    runner.forget_preparation()
    runner.kill()
    assert runner.request(("state", None), 5.0) == {}
