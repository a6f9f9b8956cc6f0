"""Implementations that break in every way end as rows that say how; the run goes on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.bench.tiny_suite import NAME, suite
from tilesmith.bench.journal import read_journal
from tilesmith.bench.plan import Job, Options, make_plan
from tilesmith.bench.row import Cause, Owner, Row, Status, average_speedup
from tilesmith.bench.run import run_plan

MODULE = "tests.bench.broken_implementations"
TIMEOUT_S = 8.0
FAILURES = {
    "raises": (Cause.EXCEPTION, "FileNotFoundError: cutlass/config.h"),
    "strays": (Cause.EXCEPTION, "CancelledError: by its own loop"),
    "forgets": (Cause.WRONG_RESULT, "a call after timing: result 0"),
    "segfaults": (Cause.CRASH, "process died: SIGSEGV while building it and calling it"),
    "hangs": (Cause.HANG, "no answer within 8 s while building it and calling it"),
    "wrong": (Cause.WRONG_RESULT, "elements are beyond the budget"),
    "takes_all_memory": (Cause.OUT_OF_MEMORY, "memory"),
    "writes_to_every_descriptor": (Cause.CRASH, "something else writes to its channel"),
    "exits": (Cause.EXCEPTION, "sys.exit(0)"),
    "exits_at_once": (Cause.CRASH, "process died: exit code 0"),
    "kills_itself": (Cause.OUT_OF_MEMORY, "SIGKILL"),
}


class Told:
    """A listener that remembers, and breaks at the last of so many jobs."""

    def __init__(self, num_jobs: int = 0) -> None:
        self.num_jobs = num_jobs
        self.jobs: list[Job] = []
        self.rows: list[Row] = []

    def started(self, job: Job) -> None:
        self.jobs.append(job)

    def finished(self, row: Row) -> None:
        self.rows.append(row)
        if len(self.rows) == self.num_jobs:
            raise RuntimeError("no listener ends a run")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bench") / "rows.jsonl"


@pytest.fixture(scope="module")
def rows(path: Path) -> dict[str, Row]:
    """One run with everything that can go wrong."""
    plugins = [f"{MODULE}:{name}" for name in (*FAILURES, "prints_garbage")]
    plugins += ["tests.bench.broken_at_import:double", "no_such_library:double"]
    options = Options(
        suite=NAME,
        kernels=("double",),
        input_ids=(1,),
        only=("tilesmith", "broken*", "no_such*", "helion", "by_hand"),
        impls=tuple(f"double={plugin}" for plugin in plugins),
        device="cpu",
        timeout_s=TIMEOUT_S,
        memory_limit_gb=1.5,
        path=path,
    )
    fragile = replace(options, kernels=("fragile",), input_ids=(), only=("tilesmith",))
    jobs = (*make_plan(suite(), options), *make_plan(suite(), fragile))
    told = Told(len(jobs))
    found = run_plan(jobs, options, told)
    assert told.rows == found
    assert [job.key for job in told.jobs] == [row.key for row in found]
    return {_short_name(row): row for row in found}


def _short_name(row: Row) -> str:
    if row.operator == "fragile":
        return f"fragile {row.input_label}"
    return row.implementation.removeprefix("broken_implementations.")


@pytest.mark.parametrize("name", FAILURES)
def test_a_broken_implementation_is_a_row_with_its_reason(rows: dict[str, Row], name: str) -> None:
    cause, reason = FAILURES[name]
    row = rows[name]
    assert (row.status, row.cause, row.blame) == (Status.FAILED, cause, "theirs failed")
    assert reason in row.reason
    assert row.reason.encode()
    assert row.latency_ms is None
    assert row.speedup is None


def test_a_failure_at_import_is_a_row_too(rows: dict[str, Row]) -> None:
    row = rows["broken_at_import.double"]
    assert (row.status, row.cause) == (Status.FAILED, Cause.EXCEPTION)
    assert row.reason.startswith("RuntimeError: built for another version")


def test_what_is_not_installed_is_nobodys_failure(rows: dict[str, Row]) -> None:
    for name, text in (("no_such_library.double", "no_such_library"), ("helion", "helion")):
        row = rows[name]
        assert (row.status, row.cause) == (Status.UNAVAILABLE, Cause.NOT_INSTALLED)
        assert text in row.reason
        assert row.blame == ""


def test_garbage_on_standard_output_harms_nothing(rows: dict[str, Row]) -> None:
    assert rows["prints_garbage"].status is Status.OK
    assert rows["prints_garbage"].latency_ms


def test_the_reason_of_a_hang_says_where(rows: dict[str, Row]) -> None:
    assert "in hangs" in rows["hangs"].reason


def test_the_reason_of_an_exception_says_where(rows: dict[str, Row]) -> None:
    assert "broken_implementations.py:" in rows["raises"].reason
    assert "tilesmith/bench/trial.py" not in rows["raises"].reason


def test_what_works_is_timed_next_to_eager(rows: dict[str, Row]) -> None:
    row = rows["tilesmith"]
    assert (row.status, row.owner, row.reason) == (Status.OK, Owner.OURS, "")
    assert row.latency_ms
    assert row.baseline_ms
    assert row.speedup == pytest.approx(row.baseline_ms / row.latency_ms)
    assert row.spread is not None
    assert row.noise_floor is not None
    assert row.error == 0.0
    assert row.config.startswith("Config(block_sizes=")
    assert row.tune_s is None
    assert row.compile_s
    assert row.gbps == pytest.approx(2 * 100 * 4 / row.latency_ms / 1e6)
    assert row.tflops == pytest.approx(100 / row.latency_ms / 1e9)
    assert row.environment["torch"]


def test_averages_leave_failures_out(rows: dict[str, Row]) -> None:
    good = rows["tilesmith"]
    average = average_speedup([good, rows["raises"], rows["helion"]])
    assert average.value == pytest.approx(good.speedup)
    assert (average.count, average.total) == (1, 2)


def test_all_rows_are_on_disk(rows: dict[str, Row], path: Path) -> None:
    journal = read_journal(path)
    assert journal.rows == list(rows.values())
    assert journal.num_unreadable == 0
    assert journal.run["options"]["kernels"] == ["double"]
    assert journal.run["software"]["torch"]


def test_a_baseline_that_crashes_costs_the_speedup_alone(rows: dict[str, Row]) -> None:
    row = rows["fragile 8"]
    assert (row.status, row.error) == (Status.OK, 0.0)
    assert row.latency_ms
    assert row.speedup is None
    died = "no speedup: with the baseline, process died: SIGSEGV while calling the eager form ("
    assert row.reason.startswith(died)
    assert (row.stage, row.stage_s) == ("", None)


def test_an_input_that_cannot_be_made_is_a_failure_of_the_harness(rows: dict[str, Row]) -> None:
    row = rows["fragile none"]
    assert (row.status, row.blame) == (Status.HARNESS_FAILED, "harness failed")
    assert "LookupError: the data set is not there" in row.reason


def test_an_input_that_needs_more_memory_than_there_is_is_left_out(rows: dict[str, Row]) -> None:
    row = rows["fragile huge"]
    assert (row.status, row.cause) == (Status.UNAVAILABLE, Cause.NOT_SUPPORTED)
    assert "needs 1e+06 GB" in row.reason
