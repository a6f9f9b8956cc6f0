"""The runner as a process of its own, which candidates may take down."""

from __future__ import annotations

import pytest

from tests.tune.runner.cases import in_place_case, with_llvm
from tests.tune.runner.faulty_runner import fault_environment
from tilesmith.lab.processes.build_pool import BuildPool
from tilesmith.lab.processes.channel import ChildDied, ChildTimeout, ErrorReply
from tilesmith.lab.processes.child import ChildProcess, RestartingChild
from tilesmith.store.outcome import Verdict
from tilesmith.tune.jobs import BuildReply, CheckJob, TimeJob

FAULTS = (
    "wrong",
    "nondeterministic",
    "incomplete",
    "out_of_memory",
    "exception",
    "segfault",
    "lose_device",
)


def test_a_runner_checks_and_times_in_its_own_process(tmp_path, own_cache):
    case = in_place_case(tmp_path)
    environment = {"TILESMITH_CACHE_DIR": str(own_cache)}
    with ChildProcess("tilesmith.tune.runner.main", environment=environment, is_bare=True) as child:
        assert child.request(case.prepare_job(), 60.0).judge.startswith("fp64 reference")
        assert child.request(CheckJob(case.program("a")), 60.0).verdict is Verdict.OK
        reply = child.request(TimeJob(("a", "a"), repeats=5), 60.0)
        assert [len(samples) for samples in reply.samples_ms] == [5, 5]
        unknown = child.request(TimeJob(("b",), repeats=5), 60.0)
        assert isinstance(unknown, ErrorReply)
        assert "not checked" in unknown.reason
    assert list(own_cache.rglob("*.o"))


def test_faults_become_verdicts_and_the_runner_comes_back(tmp_path, own_cache):
    case = in_place_case(tmp_path)
    faults = fault_environment(*({"match": f"key {name}", "fault": name} for name in FAULTS))
    client = RestartingChild(
        "tests.tune.runner.faulty_runner",
        environment={**faults, "TILESMITH_CACHE_DIR": str(own_cache)},
        is_bare=True,
    )

    def check(name: str) -> Verdict:
        return client.request(CheckJob(case.program(f"key {name}")), 60.0).verdict

    with client:
        client.prepare(case.prepare_job(), 60.0)
        assert check("right") is Verdict.OK
        assert check("wrong") is Verdict.WRONG
        assert check("incomplete") is Verdict.WRONG
        assert check("nondeterministic") is Verdict.NONDETERMINISTIC
        assert check("out_of_memory") is Verdict.OUT_OF_MEMORY
        assert check("exception") is Verdict.RUN_ERROR
        assert client.num_starts == 1
        assert check("lose_device") is Verdict.CRASHED
        assert client.num_starts == 2
        with pytest.raises(ChildDied, match="SIGSEGV"):
            check("segfault")
        assert check("right") is Verdict.OK
        assert client.num_starts == 3


def test_builds_that_misbehave_leave_the_others_alone(tmp_path, own_cache):
    case = in_place_case(tmp_path)
    spoilt = with_llvm(case.program("spoilt"), " fadd ", " nonsense ")
    names = ("segfault", "exception", "hang")
    faults = fault_environment(*({"match": name, "fault": f"build {name}"} for name in names))
    with BuildPool(
        "tests.tune.runner.faulty_runner:build",
        jobs=2,
        timeout_s=3.0,
        environment={**faults, "TILESMITH_CACHE_DIR": str(own_cache)},
    ) as pool:
        for program in (*map(case.program, names), spoilt, case.program("right")):
            pool.submit(program.key, program)
        replies = {}
        while len(replies) < 5:
            replies |= {outcome.key: outcome.reply for outcome in pool.wait(60.0)}
    assert isinstance(replies["segfault"], ChildDied)
    assert isinstance(replies["exception"], ErrorReply)
    assert isinstance(replies["hang"], ChildTimeout)
    assert isinstance(replies["right"], BuildReply)
    assert replies["right"].verdict is Verdict.OK
    assert replies["spoilt"].verdict is Verdict.BUILD_ERROR
    assert len(list(own_cache.rglob("*.o"))) == 1
