"""Builds run beside each other, fail alone, and all have an outcome."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.lab.processes.living import BUILD, children, eventually, holdings, is_alive
from tilesmith.lab.processes.build_pool import BuildOutcome, BuildPool
from tilesmith.lab.processes.channel import ChildDied, ChildTimeout, ErrorReply

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
MakePool = Callable[..., BuildPool]


class PoolWithoutFork(BuildPool):
    """As where a process cannot fork."""

    can_fork = False


@pytest.fixture
def make_pool() -> Iterator[MakePool]:
    pools: list[BuildPool] = []

    def make(kind: type[BuildPool] = BuildPool, **options: Any) -> BuildPool:
        given: dict[str, Any] = {"jobs": 2, "timeout_s": 5.0, **options}
        pools.append(kind(given.pop("function", BUILD), **given))
        return pools[-1]

    yield make
    for pool in pools:
        pool.close()


def all_outcomes(pool: BuildPool, seconds: float = 15.0) -> dict[str, BuildOutcome]:
    deadline = time.monotonic() + seconds
    found: dict[str, BuildOutcome] = {}
    while pool.pending:
        assert time.monotonic() < deadline, f"still pending: {pool.pending}"
        done = pool.wait(1.0)
        assert not found.keys() & {outcome.key for outcome in done}, "each job has one outcome"
        found.update({outcome.key: outcome for outcome in done})
    return found


@pytest.mark.parametrize("kind", [BuildPool, PoolWithoutFork])
def test_every_kind_of_end_is_an_outcome(make_pool: MakePool, kind: type[BuildPool]):
    pool = make_pool(kind, timeout_s=1.0 if kind is BuildPool else 3.0)
    for name in ("double", "fail", "segfault", "abort", "exit", "memory", "unpicklable", "hang"):
        pool.submit(name, (name, 3 if name in ("double", "exit") else "text"))
    outcomes = all_outcomes(pool)
    replies = {key: outcome.reply for key, outcome in outcomes.items()}
    assert replies["double"][0] == 6
    assert isinstance(replies["fail"], ErrorReply)
    assert replies["fail"].reason == "ValueError: text"
    assert replies["memory"].type_name == "MemoryError"
    assert replies["unpicklable"].type_name in ("AttributeError", "PicklingError")
    assert replies["segfault"].signal_name == "SIGSEGV"
    assert "in the compiler" in replies["segfault"].log_tail
    assert replies["abort"].signal_name == "SIGABRT"
    assert (type(replies["exit"]), replies["exit"].exit_code) == (ChildDied, 3)
    assert isinstance(replies["hang"], ChildTimeout)
    assert 1.0 <= outcomes["hang"].seconds < 10.0
    assert pool.server.num_starts == 1


def test_a_compiler_that_hangs_ends_with_what_it_started(make_pool: MakePool):
    pool = make_pool(timeout_s=1.0)
    # Other tests may run at the same time, with hanging builds of their own.
    seconds = 62.5 + os.getpid()
    pool.submit("hang", ("hang", seconds))
    reply = all_outcomes(pool)["hang"].reply
    assert isinstance(reply, ChildTimeout)
    assert "in hang_with_compiler" in reply.log_tail
    assert eventually(lambda: ["sleep", str(seconds)] not in map(command_of, everyone()))


def everyone() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def command_of(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")[:-1]
    except OSError:
        return []


def test_fifty_builds_some_of_which_crash_or_hang(make_pool: MakePool):
    pool = make_pool(jobs=4, timeout_s=1.0)
    jobs = ["double"] * 40 + ["segfault"] * 4 + ["hang"] * 3 + ["exit"] * 3
    Random(0).shuffle(jobs)
    for number, name in enumerate(jobs):
        pool.submit(f"{name} {number}", (name, number + 1))
    outcomes = all_outcomes(pool)
    assert len(outcomes) == 50
    for key, outcome in outcomes.items():
        name, number = key.split()
        if name == "double":
            assert outcome.reply[0] == 2 * (int(number) + 1)
        else:
            assert type(outcome.reply) is (ChildTimeout if name == "hang" else ChildDied)
    pids = {outcome.reply[1] for key, outcome in outcomes.items() if key.startswith("double")}
    assert len(pids) == 40, "one process each"
    assert pool.server.num_starts == 1
    assert pool.server.pid is not None
    assert children(pool.server.pid) == []


def test_builds_run_beside_each_other_up_to_the_limit(make_pool: MakePool):
    pool = make_pool(jobs=3)
    pool.submit("warm", ("double", 1))
    all_outcomes(pool)
    for number in range(6):
        pool.submit(str(number), ("slow", 0.3))
    assert pool.server.pid is not None
    assert eventually(lambda: len(children(pool.server.pid or 0)) == 3)
    while pool.pending:
        assert len(children(pool.server.pid)) <= 3
        pool.wait(0.02)


def test_outcomes_come_as_they_finish(make_pool: MakePool):
    pool = make_pool()
    pool.submit("slow", ("slow", 1.0))
    pool.submit("quick", ("double", 1))
    begin = time.monotonic()
    assert [outcome.key for outcome in pool.wait(10.0)] == ["quick"]
    assert pool.pending == ("slow",)
    assert pool.wait(0.05) == []
    assert [outcome.key for outcome in pool.wait(10.0)] == ["slow"]
    assert time.monotonic() - begin < 10.0
    assert pool.wait(10.0) == [], "nothing is pending, so there is nothing to wait for"


def test_builds_go_on_while_nobody_waits(make_pool: MakePool, tmp_path: Path):
    pool = make_pool(jobs=1)
    for number in range(4):
        pool.submit(str(number), ("touch", str(tmp_path / str(number))))
    assert eventually(lambda: len(list(tmp_path.iterdir())) == 4)
    assert len(pool.pending) == 4
    assert all(outcome.reply is None for outcome in all_outcomes(pool).values())


def test_long_jobs_and_replies_in_both_directions(make_pool: MakePool):
    pool = make_pool()
    for number in range(8):
        pool.submit(f"job {number}", ("loaded", ["x" * (1 << 20)]))
        pool.submit(f"reply {number}", ("big", 1 << 20))
    outcomes = all_outcomes(pool)
    assert all(len(outcomes[f"reply {number}"].reply) == 1 << 20 for number in range(8))
    assert all(outcomes[f"job {number}"].reply == [] for number in range(8))


def test_a_job_that_takes_the_server_down_fails_and_the_others_do_not(make_pool: MakePool):
    pool = make_pool(jobs=1)
    pool.submit("good", ("double", 4))
    pool.submit("bad", ("kill server", None))
    outcomes = all_outcomes(pool)
    assert outcomes["good"].reply[0] == 8
    assert isinstance(outcomes["bad"].reply, ChildDied)
    assert pool.server.num_starts == 2
    pool.submit("later", ("double", 5))
    assert all_outcomes(pool)["later"].reply[0] == 10


def test_jobs_lost_with_the_server_are_done_again(make_pool: MakePool, tmp_path: Path):
    pool = make_pool(jobs=1)
    pool.submit("bad", ("kill server once", str(tmp_path / "flag")))
    pool.submit("good", ("double", 4))
    outcomes = all_outcomes(pool)
    assert outcomes["bad"].reply == "second time"
    assert outcomes["good"].reply[0] == 8
    assert pool.server.num_starts == 2


def test_a_server_killed_while_idle_comes_back(make_pool: MakePool):
    pool = make_pool()
    pool.submit("first", ("double", 1))
    all_outcomes(pool)
    assert pool.server.pid is not None
    os.kill(pool.server.pid, signal.SIGKILL)
    pool.submit("second", ("double", 2))
    assert all_outcomes(pool)["second"].reply[0] == 4


def test_a_build_function_that_is_not_there_fails_every_job(make_pool: MakePool):
    pool = make_pool(function="tests.lab.processes.children.broken_import:build")
    pool.submit("a", None)
    pool.submit("b", None)
    outcomes = all_outcomes(pool)
    for key in ("a", "b"):
        assert isinstance(outcomes[key].reply, ChildDied)
        assert outcomes[key].reply.stage == "start"
        assert "no such compiler" in str(outcomes[key].reply)


def test_a_machine_without_room_for_a_process_fails_the_jobs(
    make_pool: MakePool, monkeypatch: pytest.MonkeyPatch
):
    before = holdings()
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    pool = make_pool()
    pool.submit("a", None)
    (outcome,) = pool.wait(5.0)
    assert outcome.key == "a"
    assert "no child process can be started" in str(outcome.reply)
    assert not holdings() - before
    monkeypatch.undo()
    pool.submit("b", ("double", 1))
    assert all_outcomes(pool)["b"].reply[0] == 2


def test_cancelled_builds_are_killed_and_never_reported(make_pool: MakePool):
    pool = make_pool()
    pool.submit("warm", ("double", 1))
    all_outcomes(pool)
    for number in range(4):
        pool.submit(str(number), ("slow", 60.0))
    server = pool.server.pid or 0
    assert eventually(lambda: len(children(server)) == 2)
    pool.cancel_all()
    assert pool.pending == ()
    assert eventually(lambda: not children(server))
    pool.submit("0", ("double", 3))
    assert all_outcomes(pool)["0"].reply[0] == 6


def test_what_is_preloaded_is_there_in_every_build(make_pool: MakePool):
    names = ["fractions", "no_such_module", "wave", "torch"]
    loads_wave = "tests.lab.processes.children.builds:load_wave"
    for calls, expected in [((), ["fractions"]), ((loads_wave,), ["fractions", "wave"])]:
        pool = make_pool(preload=("fractions", "no_such_module", "fractions:nothing", *calls))
        pool.submit("loaded", ("loaded", names))
        assert all_outcomes(pool)["loaded"].reply == expected


def test_making_a_pool_and_submitting_do_not_wait(make_pool: MakePool):
    begin = time.monotonic()
    pool = make_pool(function="tests.lab.processes.children.never_ready:build")
    for number in range(50):
        pool.submit(str(number), ("loaded", ["x" * 100_000]))
    assert pool.wait(0.1) == []
    assert len(pool.pending) == 50
    pool.close()
    assert time.monotonic() - begin < 10.0


def test_closing_leaves_nothing_behind():
    with BuildPool(BUILD, jobs=2, timeout_s=60.0) as pool:
        pool.submit("warm", ("double", 1))
        all_outcomes(pool)
    before = holdings()
    with BuildPool(BUILD, jobs=2, timeout_s=60.0) as pool:
        pool.submit("0", ("hang", None))
        pool.submit("1", ("slow", 60.0))
        server = pool.server.pid or 0
        assert eventually(lambda: len(children(server)) == 2)
        builds = children(server)
        pool.close()
        pool.close()
    assert not [pid for pid in (server, *builds) if is_alive(pid)]
    assert not holdings() - before
