"""Searches on the CPU with real processes in which things go wrong on purpose."""

from __future__ import annotations

import json
import time

import pytest
import torch

from tests.store.samples import KEY
from tests.tune.kernels import config, make_add, make_scale
from tests.tune.runner.faulty_runner import fault_environment
from tilesmith.jit.tuner import TuneRequest
from tilesmith.lab.processes.build_pool import BuildOutcome
from tilesmith.lab.processes.channel import ChildDied, ChildTimeout
from tilesmith.schedule.config import Config
from tilesmith.store.journal import Journal
from tilesmith.store.outcome import Candidate, Outcome, Verdict
from tilesmith.tune.autotune import Autotuner
from tilesmith.tune.listener import History
from tilesmith.tune.result import StopReason, TuneResult
from tilesmith.tune.workers import read_build

BUDGET = 60.0
"""Searches here have few candidates and end long before."""
X, Y = torch.randn(1000), torch.randn(1000)
QUIET = {"autotune_log_level": 50, "autotune_progress_bar": False}


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TILESMITH_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def faults(monkeypatch):
    """Sets faults by candidate, which are numbered from 1 in the order they are asked for."""
    monkeypatch.setattr("tilesmith.tune.places.RUNNER_MODULE", "tests.tune.runner.faulty_runner")
    monkeypatch.setattr(
        "tilesmith.tune.places.BUILD_FUNCTION", "tests.tune.runner.faulty_runner:build"
    )

    def put(**by_key: str) -> None:
        records = [{"match": key, "fault": fault} for key, fault in by_key.items()]
        for name, value in fault_environment(*records).items():
            monkeypatch.setenv(name, value)

    return put


def search(kernel, args, sizes, budget: float = BUDGET, **options) -> tuple[TuneResult, History]:
    """Measure given block sizes; how it ended, and what was told."""
    history = History()
    keywords = {"method": "FiniteSearch", "configs": [config(s) for s in sizes], **QUIET, **options}
    bound = kernel.bind(args)
    bound.install(Autotuner([history]).tune(bound, args, TuneRequest(True, budget, keywords)))
    assert history.result is not None
    return history.result, history


def verdicts(history: History) -> dict[int, Verdict]:
    return {t.outcome.config.block_sizes[0]: t.outcome.verdict for t in history.trials}


def block(found: Config) -> int:
    return found.block_sizes[0]


def latest_times(history: History) -> dict[int, float]:
    """Of each block size: from the finals if it was there."""
    standings = history.final.standings if history.final else ()
    times = {block(trial.outcome.config): trial.outcome.time_ms for trial in history.trials}
    return times | {block(standing.config): standing.median_ms for standing in standings}


def test_every_kind_of_failure_costs_one_candidate_only(faults):
    faults(
        c1="late", c2="segfault", c3="wrong", c4="nondeterministic", c5="build exception",
        c6="hang", c7="build segfault", c8="exhaust",
    )  # fmt: skip
    kernel = make_add()
    sizes = [1024, 512, 256, 128, 64, 32, 16, 8, 4, 2]
    result, history = search(kernel, (X, Y), sizes, benchmark_timeout=2)
    found = verdicts(history)
    assert found.pop(4) is Verdict.OK
    assert found.pop(2).is_timed
    assert found == {
        1024: Verdict.WRONG,
        512: Verdict.CRASHED,
        256: Verdict.WRONG,
        128: Verdict.NONDETERMINISTIC,
        64: Verdict.BUILD_ERROR,
        32: Verdict.HUNG,
        16: Verdict.CRASHED,
        8: Verdict.OUT_OF_MEMORY,
    }
    assert result.stop is StopReason.FINISHED
    assert block(result.config) in (4, 2)
    reasons = {block(o.config): o.reason for o in result.failures}
    assert "SIGSEGV" in reasons[512]
    assert "2 s" in reasons[32]
    assert "fault injection" in reasons[64]
    assert reasons[1024].startswith("after it was timed: ")
    assert torch.equal(kernel(X, Y), X + Y)


@pytest.mark.parametrize(
    ("failure", "verdict"),
    [
        (ChildDied(-9), Verdict.CRASHED),
        (ChildTimeout(30.0, stage="start"), Verdict.CRASHED),
        (ChildTimeout(60.0), Verdict.BUILD_TIMEOUT),
    ],
)
def test_a_build_that_the_machine_may_have_ended_is_tried_again_by_a_later_search(
    failure, verdict, tmp_path
):
    found = read_build(BuildOutcome("c1", failure, 1.0))
    assert found.verdict is verdict
    journal = Journal(tmp_path, KEY)
    outcome = Outcome(Candidate(config(64)), found.verdict, found.reason)
    journal.append(outcome)
    assert journal.recall() == {}
    journal.append(outcome)
    assert set(journal.recall()) == {config(64)}


def test_when_every_candidate_fails_the_kernel_still_runs(faults, capsys):
    faults(c1="wrong", c2="build exception", c3="wrong")
    kernel = make_add()
    result, _ = search(kernel, (X, Y), [256, 128, 64])
    assert not result.is_measured
    assert result.problem.splitlines()[0] == "none of 3 candidates can be used:"
    assert "2  wrong result, e.g. Config(block_sizes=[256]" in result.problem
    assert "1  build error" in result.problem
    warning = capsys.readouterr().err
    assert "WARNING[TuningFailed]: tuning kernel `add_function` found no config" in warning
    assert torch.equal(kernel(X, Y), X + Y)


def test_a_runner_that_cannot_start_leaves_the_default(monkeypatch, capsys):
    monkeypatch.setattr("tilesmith.tune.places.RUNNER_MODULE", "tilesmith.tune.no_such_module")
    kernel = make_add()
    result, history = search(kernel, (X, Y), [256, 128])
    assert result.stop is StopReason.NO_RUNNER
    assert "No module named tilesmith.tune.no_such_module" in result.problem
    assert not history.trials
    assert "TuningFailed" in capsys.readouterr().err
    assert torch.equal(kernel(X, Y), X + Y)


def test_arguments_are_left_alone_and_a_full_disk_costs_only_what_would_be_kept(own_cache, caplog):
    own_cache.mkdir()
    (own_cache / "tuning").write_text("not a folder")
    kernel = make_scale()
    x = torch.randn(500)
    before = x.clone()
    result, history = search(kernel, (x, 2.0), [512, 64])
    assert torch.equal(x, before)
    assert result.is_measured
    assert all(t.outcome.verdict.is_timed for t in history.trials), result.problem
    # The default's time is from where the winner's is.
    default = block(kernel.bind((x, 2.0)).default_config())
    assert result.default_ms == latest_times(history)[default]
    assert caplog.text.count("kept in memory only") == 1
    kernel(x, 2.0)
    assert torch.equal(x, before * 2.0)


def test_the_budget_is_kept_though_candidates_hang(faults):
    faults(c1="hang", c2="hang", c3="hang")
    kernel = make_add()
    kernel.bind((X, Y)).config_spec.default_config()
    start = time.monotonic()
    result, _ = search(kernel, (X, Y), [256, 128, 64], budget=5.0)
    assert time.monotonic() - start < 7.5
    assert not result.is_measured
    assert result.stop is StopReason.BUDGET


def test_a_search_goes_on_from_a_damaged_journal(own_cache):
    sizes = [1024, 1, 64]
    first, _ = search(make_add(), (X, Y), sizes)
    (journal,) = (own_cache / "tuning" / "journal").glob("*.jsonl")
    records = [json.loads(line) for line in journal.read_text().splitlines()]
    for record in records:
        # Tiny kernels take about as long whatever the block: one is to be remembered as slow.
        record["median_ms"] = 100.0 if record["config"]["block_sizes"] == [1] else 1e-3
    lines = [json.dumps(record).encode() for record in records]
    journal.write_bytes(b"\n".join([b"\xff\xfe garbage", *lines, b'{"schema": 1, "key": "torn']))
    (winners,) = (own_cache / "tuning" / "winners").glob("*.json")
    winners.write_text("{" + winners.read_text())
    kernel = make_add()
    assert torch.equal(kernel(X, Y), X + Y)
    second, history = search(kernel, (X, Y), sizes)
    assert second.is_measured
    assert first.num_recalled == 0
    recalled = {block(t.outcome.config): t.outcome.is_recalled for t in history.trials}
    assert recalled == {1024: False, 1: True, 64: False}
