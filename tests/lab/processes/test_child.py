"""A child process may do anything; its parent learns what, and nothing is left of the child."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.processes.living import PLAYFUL, eventually, holdings, is_alive
from tilesmith.lab.processes.channel import ChildDied, ChildError, ChildTimeout, ErrorReply
from tilesmith.lab.processes.child import ChildProcess

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
CHILDREN = "tests.lab.processes.children"


@pytest.fixture
def child() -> Iterator[ChildProcess]:
    with ChildProcess(PLAYFUL, is_bare=True) as process:
        yield process


def test_jobs_are_answered_by_one_process(child: ChildProcess):
    pids = {child.request(("pid", None), 5.0) for _ in range(3)}
    assert pids == {child.pid}
    assert child.num_starts == 1


def test_start_returns_at_once():
    begin = time.monotonic()
    with ChildProcess(f"{CHILDREN}.never_ready", is_bare=True):
        assert time.monotonic() - begin < 5.0


def test_an_exception_is_an_answer_and_the_child_goes_on(child: ChildProcess):
    pid = child.request(("pid", None), 5.0)
    reply = child.request(("fail", "two\nlines"), 5.0)
    assert isinstance(reply, ErrorReply)
    assert (reply.type_name, reply.message) == ("ValueError", "two\nlines")
    assert reply.reason == "ValueError: two"
    assert "in fail" in reply.traceback_tail
    assert child.request(("pid", None), 5.0) == pid


@pytest.mark.parametrize(
    ("job", "type_name"),
    [
        (("fail_unpicklable", None), "UnpicklableError"),
        (("out_of_memory", None), "MemoryError"),
        (("reply_of", "lambda"), "AttributeError|PicklingError"),
        (("reply_of", "local class"), "UnreadableMessage"),
    ],
)
def test_what_cannot_be_sent_is_described(child: ChildProcess, job: object, type_name: str):
    reply = child.request(job, 5.0)
    assert isinstance(reply, ErrorReply)
    assert reply.type_name in type_name.split("|")
    assert child.request(("echo", 1), 5.0) == 1


@pytest.mark.parametrize(
    ("job", "exit_code", "name"),
    [
        (("segfault", None), -signal.SIGSEGV, "SIGSEGV"),
        (("abort", None), -signal.SIGABRT, "SIGABRT"),
        (("leave", 3), 3, ""),
        (("leave", None), 0, ""),
        (("half_a_frame", None), 0, ""),
    ],
)
def test_a_death_is_told_with_its_cause(
    child: ChildProcess, job: object, exit_code: int, name: str
):
    with pytest.raises(ChildDied) as caught:
        child.request(job, 5.0)
    assert caught.value.exit_code == exit_code
    assert caught.value.signal_name == name
    assert caught.value.stage == "job"
    assert (name or f"exit code {exit_code}") in caught.value.reason
    assert not child.is_alive
    assert child.request(("echo", 2), 5.0) == 2


def test_the_log_tells_where_it_fell(child: ChildProcess):
    with pytest.raises(ChildDied, match="about to fall") as caught:
        child.request(("segfault", None), 5.0)
    assert "in segfault" in caught.value.log_tail


@pytest.mark.parametrize("job", [("sleep", 60.0), ("hang_deaf", None)])
def test_a_hang_ends_at_the_timeout(child: ChildProcess, job: tuple[str, object]):
    child.await_ready()
    pid = child.pid
    begin = time.monotonic()
    with pytest.raises(ChildTimeout) as caught:
        child.request(job, 0.5)
    assert time.monotonic() - begin < 10.0
    assert caught.value.seconds == 0.5
    assert f"in {job[0]}" in caught.value.log_tail, "the stack of where it hung"
    assert pid is not None
    assert not is_alive(pid)


def test_killed_from_outside_while_working(child: ChildProcess):
    child.await_ready()
    assert child.pid is not None
    timer = threading.Timer(0.2, os.kill, (child.pid, signal.SIGKILL))
    timer.start()
    with pytest.raises(ChildDied, match="SIGKILL"):
        child.request(("sleep", 60.0), 30.0)


def test_killed_from_outside_between_requests(child: ChildProcess):
    first = child.request(("pid", None), 5.0)
    os.kill(first, signal.SIGKILL)
    assert eventually(lambda: not child.is_alive)
    assert child.request(("pid", None), 5.0) != first
    assert child.num_starts == 2


@pytest.mark.parametrize(
    ("job", "text"),
    [("garbage", "something else writes to its channel"), ("close_channel", "closed its channel")],
)
def test_a_child_that_spoils_its_channel_is_taken_for_dead(
    child: ChildProcess, job: str, text: str
):
    child.await_ready()
    pid = child.pid
    with pytest.raises(ChildDied, match=text):
        child.request((job, None), 5.0)
    assert pid is not None
    assert not is_alive(pid)


def test_a_huge_reply_and_a_huge_job(child: ChildProcess):
    assert child.request(("big", 100 << 20), 30.0) == b"\x5a" * (100 << 20)
    job = b"j" * (5 << 20)
    assert child.request(("echo", job), 30.0) == job


def test_prints_go_to_the_log_and_not_into_the_stream(
    child: ChildProcess, capfd: pytest.CaptureFixture[str]
):
    assert child.request(("chatter", None), 5.0) == ""
    expected = {"to stdout", "to stderr", "to descriptor 1", "from a shell"}
    assert expected == set(child.log_tail.splitlines())
    assert capfd.readouterr() == ("", "")


def test_a_flood_of_text_is_kept_short_but_for_its_end(child: ChildProcess):
    assert child.request(("flood", 32 << 20), 20.0) == "done"
    child.request(("sleep", 0.3), 5.0)
    log = child._running().log
    assert log._size() <= 2 << 20
    assert log.tail().endswith("the end\n")


def test_a_job_that_cannot_be_pickled_harms_nobody(child: ChildProcess):
    pid = child.request(("pid", None), 5.0)
    with pytest.raises((AttributeError, pickle.PicklingError)):
        child.request(lambda: None, 5.0)
    assert child.request(("pid", None), 5.0) == pid


def test_the_last_reply_of_a_process_ends_it(child: ChildProcess):
    child.await_ready()
    assert child.request(("last", 5), 5.0) == 5
    assert not child.is_alive


def test_a_child_that_does_not_come_up_is_killed():
    with ChildProcess(f"{CHILDREN}.never_ready", is_bare=True, start_timeout_s=0.3) as child:
        with pytest.raises(ChildTimeout, match=r"did not start within 0\.3 s") as caught:
            child.request(None, 30.0)
        assert caught.value.stage == "start"
        assert not child.is_alive


def test_a_child_that_cannot_be_imported_says_why():
    with ChildProcess(f"{CHILDREN}.broken_import", is_bare=True) as child:
        with pytest.raises(ChildDied, match="no such compiler") as caught:
            child.request(None, 30.0)
        assert (caught.value.stage, caught.value.exit_code) == ("start", 1)


def test_start_up_does_not_count_against_the_first_job():
    with ChildProcess(f"{CHILDREN}.stateful", is_bare=True) as child:
        assert child.request(("state", None), 0.5) == {}


def test_what_a_child_started_ends_with_it(child: ChildProcess):
    helper = child.request(("start_helper", None), 5.0)
    assert is_alive(helper)
    child.kill()
    assert eventually(lambda: not is_alive(helper))


def test_helpers_of_a_child_that_died_by_itself_end_too(child: ChildProcess):
    helper = child.request(("start_helper", None), 5.0)
    with pytest.raises(ChildDied):
        child.request(("leave", 1), 5.0)
    assert eventually(lambda: not is_alive(helper))


def test_closing_is_idempotent_and_final_until_the_next_request():
    child = ChildProcess(PLAYFUL, is_bare=True)
    child.close()
    first = child.request(("pid", None), 5.0)
    child.close()
    child.close()
    child.kill()
    assert not is_alive(first)
    assert child.pid is None
    with pytest.raises(ChildError, match="closed"):
        child.poll(0.0)
    assert child.request(("pid", None), 5.0) != first
    child.close()


def test_a_child_is_given_up_with_its_object():
    child = ChildProcess(PLAYFUL, is_bare=True)
    pid = child.request(("pid", None), 5.0)
    del child
    assert not is_alive(pid)


def test_a_child_ends_by_itself_when_it_is_given_time(child: ChildProcess):
    pid = child.request(("pid", None), 5.0)
    life = child._running()
    child.close(grace_s=5.0)
    assert life.popen.returncode == 0
    assert not is_alive(pid)


def test_kill_from_another_thread_ends_a_request(child: ChildProcess):
    child.await_ready()
    threading.Timer(0.1, child.kill).start()
    with pytest.raises(ChildDied):
        child.request(("sleep", 60.0), 30.0)


def test_a_child_outlives_the_thread_that_started_it(child: ChildProcess):
    pids: list[int] = []
    worker = ChildProcess(PLAYFUL, is_bare=True)
    thread = threading.Thread(target=lambda: pids.append(worker.request(("pid", None), 5.0)))
    thread.start()
    thread.join()
    time.sleep(0.3)
    assert worker.request(("pid", None), 5.0) == pids[0]
    worker.close()


def test_no_descriptor_process_or_file_is_leaked():
    with ChildProcess(PLAYFUL, is_bare=True) as child:
        child.await_ready()
    before = holdings()
    scratch: list[Path] = []
    for job in ("echo", "segfault", "leave", "fail"):
        with ChildProcess(PLAYFUL, is_bare=True) as child:
            facts = child.request(("facts", None), 5.0)
            scratch.append(Path(facts["environment"]["TMPDIR"]))
            assert scratch[-1].is_dir()
            try:
                child.request((job, 1), 5.0)
            except ChildDied:
                child.request(("echo", 1), 5.0)
    assert not holdings() - before
    assert not [folder for folder in scratch if folder.exists()]


def test_the_surroundings_of_a_child():
    os.environ["TILESMITH_OF_THE_PARENT"] = "1"
    try:
        with ChildProcess(PLAYFUL, environment={"OF_THE_CHILD": "2"}, is_bare=True) as child:
            facts = child.request(("facts", None), 5.0)
    finally:
        del os.environ["TILESMITH_OF_THE_PARENT"]
    assert facts["session"] == facts["pid"], "a session of its own"
    assert facts["ignores_interrupt"]
    assert facts["environment"]["TILESMITH_OF_THE_PARENT"] == "1"
    assert facts["environment"]["OF_THE_CHILD"] == "2"
    folders = dict.fromkeys(entry or str(Path.cwd()) for entry in sys.path)
    assert facts["path"][: len(folders)] == list(folders)
    assert "torch" not in facts["modules"], "a bare child starts without it"
    assert facts["num_fds"] <= 6


def test_failures_can_be_sent():
    for failure in (ChildDied(-11, "tail", "start"), ChildTimeout(2.0, "tail", "start")):
        copy = pickle.loads(pickle.dumps(failure))
        assert (str(copy), copy.stage) == (str(failure), "start")
