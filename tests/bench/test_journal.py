"""Rows on disk: what is whole is kept, whatever interrupted the writing."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.bench.tiny_suite import NAME, suite
from tilesmith.bench.job_rows import blank_row
from tilesmith.bench.journal import JournalError, JournalWriter, read_journal
from tilesmith.bench.plan import Job, Options, PlanError, make_plan
from tilesmith.bench.row import Cause, Row, Status
from tilesmith.bench.run import describe_run, kept_rows, run_plan


def options_for(path: Path) -> Options:
    return Options(suite=NAME, kernels=("double",), device="cpu", path=path, resume=True)


def jobs_for(path: Path) -> tuple[Job, ...]:
    return make_plan(suite(), options_for(path))


def rows_for(path: Path) -> list[Row]:
    return [replace(blank_row(job), latency_ms=1.5) for job in jobs_for(path)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "rows.jsonl"


def write(path: Path, rows: list[Row]) -> None:
    with JournalWriter(path) as journal:
        if journal.is_new:
            journal.write_run(describe_run(options_for(path)))
        for row in rows:
            journal.write(row)


def test_what_was_written_is_read(path: Path) -> None:
    rows = rows_for(path)
    write(path, rows)
    journal = read_journal(path)
    assert journal.rows == rows
    assert journal.run["options"]["regime"] == "cold"
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("num_bytes", [1, 2, 20, 100])
def test_a_torn_last_line_is_dropped_and_written_over(path: Path, num_bytes: int) -> None:
    rows = rows_for(path)
    write(path, rows[:3])
    whole = path.read_bytes()
    path.write_bytes(whole[:-num_bytes])
    assert read_journal(path).rows == rows[: 3 if num_bytes == 1 else 2]
    write(path, rows[2:])
    assert path.read_bytes().startswith(whole)
    journal = read_journal(path)
    assert (journal.rows, journal.num_unreadable) == (rows, 0)


def test_unreadable_lines_are_counted_and_passed_over(path: Path) -> None:
    rows = rows_for(path)
    write(path, rows[:1])
    with path.open("ab") as file:
        file.write(b'\xff\xfe garbage\n{"status": "ok"}\n[]\n3\n\n')
    write(path, rows[1:2])
    journal = read_journal(path)
    assert (journal.rows, journal.num_unreadable) == (rows[:2], 5)


@pytest.mark.parametrize(
    "change",
    [
        {"latency_ms": "fast"},
        {"latency_ms": [1.5]},
        {"reason": None},
        {"environment": "here"},
        {"status": "fine"},
        {"input_id": "0"},
        {"is_disturbed": "no"},
    ],
)
def test_a_row_of_another_form_is_unreadable(path: Path, change: dict[str, object]) -> None:
    row = rows_for(path)[0]
    write(path, [])
    with path.open("a") as file:
        file.write(json.dumps({**json.loads(row.to_json()), **change}) + "\n")
    journal = read_journal(path)
    assert (journal.rows, journal.num_unreadable) == ([], 1)


@pytest.mark.parametrize(
    "run", ["5", '"now"', '{"software": 3}', '{"options": ["a"]}', "[" * 99999]
)
def test_a_first_line_of_another_form_is_unreadable(path: Path, run: str) -> None:
    path.parent.mkdir()
    path.write_text(f'{{"run": {run}}}\n{rows_for(path)[0].to_json()}\n')
    journal = read_journal(path)
    assert (journal.run, len(journal.rows), journal.num_unreadable) == ({}, 1, 1)


def test_the_last_row_of_a_key_counts(path: Path) -> None:
    rows = rows_for(path)
    failed = replace(rows[0], status=Status.FAILED, cause=Cause.CRASH, latency_ms=None)
    write(path, [failed, rows[1], rows[0]])
    assert read_journal(path).rows == rows[:2]


def test_fields_of_later_versions_are_passed_over(path: Path) -> None:
    row = rows_for(path)[0]
    write(path, [])
    with path.open("a") as file:
        file.write(json.dumps({**json.loads(row.to_json()), "temperature": 21}) + "\n")
    assert read_journal(path).rows == [row]


def test_two_runs_cannot_write_to_one_file(path: Path) -> None:
    with JournalWriter(path), pytest.raises(PlanError, match="another run"):
        JournalWriter(path)
    JournalWriter(path).close()


@pytest.mark.parametrize(
    ("status", "is_kept", "is_kept_on_retry"),
    [
        (Status.OK, True, True),
        (Status.UNAVAILABLE, True, True),
        (Status.FAILED, True, False),
        (Status.HARNESS_FAILED, False, False),
    ],
)
def test_rows_are_kept_by_how_they_ended(
    path: Path, status: Status, is_kept: bool, is_kept_on_retry: bool
) -> None:
    row = replace(rows_for(path)[0], status=status)
    write(path, [row])
    jobs, options = jobs_for(path), options_for(path)
    kept = {row.key: row}
    assert kept_rows(jobs, options) == (kept if is_kept else {})
    again = replace(options, retry_failed=True)
    assert kept_rows(jobs, again) == (kept if is_kept_on_retry else {})


@pytest.mark.parametrize("side", ["is_disturbed", "is_speedup_disturbed"])
def test_disturbed_rows_are_run_again_if_that_is_asked_for(path: Path, side: str) -> None:
    first, second = rows_for(path)[:2]
    disturbed = replace(second, status=Status.OK, **{side: True})
    write(path, [replace(first, status=Status.OK), disturbed])
    jobs, options = jobs_for(path), options_for(path)
    assert set(kept_rows(jobs, options)) == {first.key, second.key}
    assert set(kept_rows(jobs, replace(options, retry_disturbed=True))) == {first.key}


def test_rows_of_other_inputs_stay_in_the_file_and_out_of_the_result(path: Path) -> None:
    rows = rows_for(path)
    write(path, rows)
    options = replace(options_for(path), input_ids=(2,))
    found = run_plan(make_plan(suite(), options), options)
    assert found == [row for row in rows if row.input_id == 2]
    assert read_journal(path).rows == rows


def test_a_file_is_not_written_over_unasked(path: Path) -> None:
    write(path, rows_for(path))
    before = path.read_bytes()
    with pytest.raises(PlanError, match="--resume"):
        run_plan(jobs_for(path), replace(options_for(path), resume=False))
    assert path.read_bytes() == before


def test_a_file_of_something_else_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("no rows\nand no end of line")
    with pytest.raises(PlanError, match="no rows"):
        run_plan(jobs_for(path), options_for(path))
    assert path.read_text() == "no rows\nand no end of line"


def test_rows_measured_in_another_way_are_not_mixed(path: Path) -> None:
    write(path, rows_for(path))
    with pytest.raises(PlanError, match="regime was 'cold' and is 'warm' now"):
        run_plan(jobs_for(path), replace(options_for(path), regime="warm"))


@pytest.mark.parametrize("resume", [False, True])
def test_what_rows_cannot_be_read_back_from_is_refused(tmp_path: Path, resume: bool) -> None:
    for place in (tmp_path, Path("/dev/null")):
        options = replace(options_for(place), resume=resume)
        with pytest.raises(PlanError, match="no ordinary file"):
            run_plan((), options)


def test_a_file_that_cannot_be_made_is_an_error_that_says_why(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(PlanError, match=r"file/rows\.jsonl cannot be written to: "):
        JournalWriter(tmp_path / "file" / "rows.jsonl")


def test_a_full_disk_keeps_the_rows_that_are_there(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    rows = rows_for(path)
    write(path, rows[:2])
    with monkeypatch.context() as context:
        context.setattr(os, "fsync", full)
        with pytest.raises(JournalError, match="No space left"):
            write(path, rows[2:3])
    write(path, rows[3:4])
    assert read_journal(path).rows[:2] == rows[:2]
    assert read_journal(path).rows[-1] == rows[3]


def test_a_number_that_stands_for_another_input_now_is_run_again(path: Path) -> None:
    first, second = rows_for(path)[:2]
    write(path, [replace(first, input_label="of long ago"), second])
    assert kept_rows(jobs_for(path), options_for(path)) == {second.key: second}


def test_rows_without_speedups_are_not_taken_for_rows_with_them(path: Path) -> None:
    some = replace(options_for(path), metrics=("latency",))
    with JournalWriter(path) as journal:
        journal.write_run(describe_run(some))
    assert kept_rows(jobs_for(path), some) == {}
    with pytest.raises(PlanError, match="speedup was False"):
        kept_rows(jobs_for(path), options_for(path))


def test_rows_of_another_torch_are_not_gone_on_with(path: Path) -> None:
    run = describe_run(options_for(path))
    run["software"]["torch"] = "1.0"
    with JournalWriter(path) as journal:
        journal.write_run(run)
    with pytest.raises(PlanError, match=r"torch was '1\.0'"):
        kept_rows(jobs_for(path), options_for(path))
