"""``tilesmith compare``: what is printed of two files of rows, and its exit codes."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table

from tests.bench.made_up_rows import fail, make_row
from tests.cli.test_bench import run, write
from tilesmith.bench.compare import compare
from tilesmith.bench.journal import read_journal
from tilesmith.bench.row import Cause
from tilesmith.cli.compare import comparison_parts, table_width


@pytest.fixture
def two_runs(tmp_path) -> tuple[str, str]:
    before = [make_row(input_id=number, input_label=label) for number, label in enumerate("abcd")]
    after = [
        replace(before[0], latency_ms=0.75),
        replace(before[1], latency_ms=0.25),
        before[2],
        fail(before[3], Cause.CRASH, "signal 11 (SIGSEGV)"),
        make_row(input_id=4, input_label="e"),
    ]
    first, second = write(tmp_path / "a.jsonl", before), write(tmp_path / "b.jsonl", after)
    return str(first), str(second)


def test_changes_are_listed(two_runs):
    done = run("compare", *two_runs)
    assert done.exit_code == 0, done.stderr
    lines = done.stdout.splitlines()
    (slower,) = [line for line in lines if line.split()[:1] == ["slower"]]
    assert slower.split()[1:] == [
        *("gemm", "a", "bfloat16", "tilesmith", "0.5", "0.75", "+50.0%", "+50.0%", "±3.0%"),
    ]
    assert "fails now: gemm d tilesmith: ours failed: crash: signal 11 (SIGSEGV)" in lines
    assert "tilesmith: times -9.1% (geometric mean, 3 of 5)" in lines
    assert lines[-1] == ("1 fails now, 1 slower, 1 faster, 1 within noise, 1 only in the second")


def test_a_table_that_does_not_fit_becomes_lines(two_runs):
    before, after = (read_journal(Path(path)).rows for path in two_runs)
    found = compare(before, after)
    console = Console(file=io.StringIO(), width=80, record=True)
    for part in comparison_parts(found, has_all=True, width=80):
        console.print(part, soft_wrap=True)
    lines = console.export_text().splitlines()
    moved = "0.5 to 0.75 ms, time +50.0%, against eager +50.0%, noise ±3.0%"
    assert f"slower: gemm a bfloat16 tilesmith: {moved}" in lines


def test_the_width_of_the_table_is_known(two_runs):
    before, after = (read_journal(Path(path)).rows for path in two_runs)
    found = compare(before, after)
    timed = [change for change in found.changes if change.ratio is not None]
    console = Console(file=io.StringIO(), width=300)
    (table,) = [p for p in comparison_parts(found, has_all=True) if isinstance(p, Table)]
    assert console.measure(table).maximum == table_width(timed)


def test_what_the_runs_differ_in_is_said_first(tmp_path):
    rows = [make_row(), make_row(environment={**make_row().environment, "torch": "2.12.0"})]
    paths = [str(write(tmp_path / name, [row])) for name, row in zip("ab", rows)]
    first = run("compare", *paths).stdout.splitlines()[0]
    assert first.startswith("the runs differ in torch (2.11.0, then 2.12.0): times may have")
    told = json.loads(run("compare", "--json", *paths).stdout)["differences"]
    assert told == {"torch": ["2.11.0", "2.12.0"]}
    assert "differ" not in run("compare", paths[0], paths[0]).stdout


def test_disturbed_times_are_listed_and_fail_nothing(tmp_path):
    before = [make_row(input_id=0, input_label="a"), make_row(input_id=1, input_label="b")]
    after = [replace(before[0], latency_ms=5.0, is_disturbed=True), before[1]]
    paths = [str(write(tmp_path / name, rows)) for name, rows in (("a", before), ("b", after))]
    done = run("compare", "--fail-on-slower", *paths)
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert "+900.0%" in next(line for line in lines if line.split()[:1] == ["disturbed"])
    assert "tilesmith: times +0.0% (geometric mean, 1 of 2, 1 disturbed)" in lines
    assert lines[-1] == "the machine was busy: 1 row cannot be compared"


def test_all_rows_are_listed_if_asked_for(two_runs):
    assert "+0.0%" not in run("compare", *two_runs).stdout
    assert "+0.0%" in run("compare", "--all", *two_runs).stdout


def test_regressions_fail_if_asked_for(two_runs):
    assert run("compare", "--fail-on-slower", *two_runs).exit_code == 1
    same = (two_runs[0], two_runs[0])
    assert run("compare", "--fail-on-slower", *same).exit_code == 0


def test_a_comparison_of_nothing_is_no_success(tmp_path):
    one = make_row(input_id=0, input_label="a")
    other = make_row(input_id=1, input_label="b")
    disturbed = replace(one, is_disturbed=True)
    for before, after in [(one, other), (one, disturbed)]:
        paths = [str(write(tmp_path / name, [row])) for name, row in (("a", before), ("b", after))]
        done = run("compare", "--fail-on-slower", *paths)
        assert done.exit_code == 1
        assert "nothing of ours can be compared" in done.stderr
        assert run("compare", *paths).exit_code == 0


def test_the_threshold_is_in_percent(two_runs):
    done = run("compare", "--threshold", "400", "--json", *two_runs)
    kinds = [change["kind"] for change in json.loads(done.stdout)["changes"]]
    assert kinds.count("within noise") == 3


def test_a_file_without_rows_is_a_mistake(two_runs, tmp_path):
    (tmp_path / "empty").write_text("what is this\n")
    done = run("compare", two_runs[0], str(tmp_path / "empty"))
    assert done.exit_code == 2
    assert "has no rows of a benchmark" in done.stderr
