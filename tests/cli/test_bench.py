"""``tilesmith bench``: options, what is printed where, files, exit codes."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from operator import methodcaller
from pathlib import Path
from typing import get_type_hints

import pytest
import torch
import typer
from rich.console import Console
from typer.testing import CliRunner

import tilesmith.cli.bench as command
from tests.bench.made_up_rows import fail, make_row, make_rows
from tilesmith.bench.case import Input, Operator, Suite
from tilesmith.bench.journal import JournalError
from tilesmith.bench.plan import Job, Options, Shard, make_plan
from tilesmith.bench.row import Cause, Row, Status
from tilesmith.bench.run import SafeListener
from tilesmith.cli import bench as bench_command
from tilesmith.cli import compare as compare_command
from tilesmith.cli.bench import ProgressLines, exit_code

app = typer.Typer()
bench_command.add_to(app)
compare_command.add_to(app)


def make_input(label: str) -> Input:
    return Input(label, lambda device, dtype: (torch.ones(4, dtype=dtype, device=device),))


SUITE = Suite(
    "made up",
    [
        Operator("gemm", [make_input("256"), make_input("512")], {"gemm": "m:gemm"}, torch.neg),
        Operator("norm", [make_input("8")], {"norm": "m:norm"}, torch.neg),
    ],
)


class Runs:
    """Stands for the supervisor: every job ends well."""

    def __init__(self) -> None:
        self.options: list[Options] = []

    def __call__(self, jobs, options, listener=None) -> list[Row]:
        self.options.append(options)
        rows = []
        for job in jobs:
            row = make_row(
                operator=job.operator,
                input_id=job.input_id,
                input_label=job.input_label,
                implementation=job.implementation.name,
                owner=job.owner,
                device=job.device,
                dtype=job.dtype,
            )
            if listener is not None:
                listener.started(job)
                listener.finished(row)
            rows.append(row)
        if options.path is not None:
            write(options.path, rows)
        return rows


@pytest.fixture
def runs(monkeypatch, tmp_path) -> Runs:
    made = Runs()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "run_plan", made)
    monkeypatch.setattr(command, "load_suite", lambda name: SUITE)
    return made


def write(path: Path, rows: list[Row]) -> Path:
    lines = [json.dumps({"run": {"started": "now"}}), *(row.to_json() for row in rows)]
    path.write_text("\n".join(lines) + "\n")
    return path


def run(*arguments: str):
    return CliRunner().invoke(app, list(arguments))


def test_rows_are_told_on_standard_error_and_results_on_standard_output(runs):
    done = run("bench", "--kernel", "norm", "--only", "tilesmith,eager", "--device", "cpu")
    assert done.exit_code == 0, done.stderr
    assert "[1/2] norm 8 tilesmith: 0.5 ms" in done.stderr
    assert "[2/2] norm 8 eager: 0.5 ms" in done.stderr
    assert done.stdout.splitlines()[-1] == "2 rows: 2 ok"
    assert "[1/2]" not in done.stdout


def test_rows_go_to_a_new_file_that_is_named(runs, tmp_path):
    done = run("bench", "--kernel", "norm", "--only", "eager")
    (path,) = tmp_path.glob("bench-*.jsonl")
    assert f"1 row to {path.name}" in done.stderr


def test_a_terminal_has_a_bar_below_the_lines():
    jobs = make_plan(SUITE, Options(kernels=("norm",), only=("tilesmith", "eager"), device="cpu"))
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=100)
    listener = ProgressLines(jobs, console)
    Runs()(jobs, Options(), listener)
    listener.stop()
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", out.getvalue())
    assert "[2/2] norm 8 eager: 0.5 ms" in text
    assert "2/2 0:00:0" in text
    # The cursor is shown again.
    assert out.getvalue().rindex("\x1b[?25h") > out.getvalue().rindex("\x1b[?25l")


def test_quiet_prints_nothing(runs):
    done = run("bench", "--quiet", "--only", "eager", "--csv", "a.csv")
    assert (done.stdout, done.stderr, done.exit_code) == ("", "", 0)
    assert Path("a.csv").read_text().count("\n") == 4


def test_every_option_of_the_library_can_be_given(runs):
    given = (
        "--kernel=norm, gemm --input-shard=1/2 --num-inputs=3 --input-id=0,1 --only=tile*,m.f "
        "--impl=m:f --metrics=latency,tflops --regime=warm --no-cudagraph --dtype=fp32 "
        "--backend=cpu --device=cpu --tune-budget=3 --timeout=7 --use-cache --fresh-processes "
        "--require-accuracy --memory-limit=2 --suite=s --out=o.jsonl --resume --retry-failed "
        "--retry-disturbed"
    )
    done = run("bench", *re.split(" (?=--)", given))
    assert done.exit_code == 0, done.stderr
    (options,) = runs.options
    assert type(options) is Options
    assert options.kernels == ("norm", "gemm")
    assert options.shard == Shard(1, 2)
    assert options.input_ids == (0, 1)
    assert options.impls == ("m:f",)
    assert options.metrics == ("latency", "tflops")
    default = Options()
    same = [
        name for name in get_type_hints(Options) if getattr(options, name) == getattr(default, name)
    ]
    assert same == []


def test_a_list_says_what_cannot_run(runs):
    done = run("bench", "--list", "--kernel", "norm", "--dtype", "fp64", "--device", "cpu")
    assert done.stdout.splitlines()[-1] == "    0  8  float64  (norm is not for torch.float64)"


def test_a_list_as_json(runs, tmp_path):
    arguments = ["--list", "--kernel", "gemm", "--only", "tilesmith", "--device", "cpu"]
    (job, *_) = json.loads(run("bench", *arguments, "--json", "-").stdout)["jobs"]
    assert job == {
        "operator": "gemm", "input_id": 0, "input_label": "256", "dtype": "bfloat16",
        "implementation": "tilesmith", "owner": "ours", "device": "cpu",
    }  # fmt: skip
    path = tmp_path / "jobs.json"
    done = run("bench", *arguments, "--json", str(path))
    assert done.stdout.startswith("gemm\n")
    assert json.loads(path.read_text())["jobs"][0] == job
    done = run("bench", *arguments, "--json", str(tmp_path / "nowhere" / "jobs.json"))
    assert done.exit_code == 2
    assert "cannot be written: No such file or directory" in done.stderr
    assert not runs.options


def test_a_list_of_what_would_run(runs):
    arguments = ["--kernel", "gemm", "--only", "tilesmith*", "--input-id", "1", "--device", "cpu"]
    done = run("bench", "--list", *arguments)
    assert done.exit_code == 0
    assert done.stdout.splitlines() == [
        "gemm",
        "  implementations: tilesmith, tilesmith_tuned",
        "    1  512  bfloat16",
    ]
    assert not runs.options


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--kernel", "gem"], "did you mean gemm?"),
        (["--only", "eagre"], "did you mean eager?"),
        (["--input-shard", "5/4"], "expected M/N"),
        (["--input-id", "one"], "--input-id one: one is no number"),
        (["--metrics", "speed"], "did you mean speedup?"),
        (["--regime", "lukewarm"], "warm"),
        (["--device", "toaster"], "cpu, cuda"),
        (["--resume"], "--resume needs the file"),
        (["--kernel", "norm", "--input-id", "7"], "--input-id 7: there are 1 inputs"),
        (["--from", "nowhere.jsonl"], "nowhere.jsonl: No such file"),
    ],
)
def test_mistakes_are_messages(arguments, message, runs):
    done = run("bench", *arguments)
    assert done.exit_code == 2, done.stdout
    assert done.stderr.startswith("error: ")
    assert message in done.stderr
    assert not runs.options


def test_reports_of_an_earlier_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "rows.jsonl", make_rows())
    done = run("bench", "--from", "rows.jsonl", "--csv", "x/a.csv", "--json", "a.json")
    assert done.exit_code == 1  # Ours failed.
    assert done.stdout.splitlines()[-1].startswith("60 rows: 53 ok, 1 ours failed")
    assert done.stderr == "wrote x/a.csv, a.json\n"
    printed = run("bench", "--from", "rows.jsonl", "--json", "-")
    assert printed.stdout == Path("a.json").read_text()
    assert printed.stderr == ""
    assert len(json.loads(Path("a.json").read_text())["rows"]) == 60
    assert len(Path("x/a.csv").read_text().splitlines()) > 60


def test_rows_of_an_earlier_run_are_chosen_as_what_runs_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "rows.jsonl", make_rows())
    chosen = ["--kernel", "gemm", "--only", "eager,tilesmith", "--input-id", "0,1"]
    done = run("bench", "--from", "rows.jsonl", *chosen, "--json", "a.json")
    assert done.stdout.splitlines()[-1] == "4 rows: 3 ok, 1 theirs failed"
    assert done.exit_code == 0
    assert len(json.loads(Path("a.json").read_text())["rows"]) == 4


@pytest.mark.parametrize(
    "arguments",
    [
        ["--regime", "cold"],
        ["--timeout", "300"],
        ["--tune-budget", "15"],
        ["--suite", "benchmarks.suites"],
        ["--impl", "m:f"],
        ["--no-cudagraph"],
        ["--cudagraph"],
        ["--backend", "cpu"],
        ["--out", "o.jsonl"],
        ["--list"],
        ["--launch"],
        ["--use-cache"],
        ["--memory-limit", "3"],
        ["--require-accuracy"],
    ],
)
def test_what_would_be_passed_over_with_a_file_is_refused(arguments, tmp_path):
    path = write(tmp_path / "rows.jsonl", [make_row()])
    done = run("bench", "--from", str(path), *arguments)
    assert done.exit_code == 2
    assert " does not go with " in done.stderr
    assert arguments[0] in done.stderr


def test_launch_costs_refuse_what_they_do_not_look_at(runs):
    done = run("bench", "--launch", "--device", "cpu", "--kernel", "gemm")
    assert done.exit_code == 2
    assert "--launch does not go with --kernel: it times calls of its own" in done.stderr


def test_a_page_and_pictures_are_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "rows.jsonl", [make_row()])
    done = run("bench", "--from", "rows.jsonl", "--html", "a.html", "--svg", "p", "--quiet")
    assert done.exit_code == 0, done.stderr
    assert "<svg" in Path("a.html").read_text()
    assert sorted(path.name for path in Path("p").iterdir())[0] == "roofline.svg"


def test_a_report_that_cannot_be_written_is_a_message(tmp_path):
    write(tmp_path / "rows.jsonl", [make_row()])
    (tmp_path / "file").write_text("in the way")
    done = run("bench", "--from", str(tmp_path / "rows.jsonl"), "--csv", str(tmp_path / "file/a"))
    assert done.exit_code == 2
    assert "a report cannot be written" in done.stderr


def test_an_interrupted_run_says_how_to_go_on(runs, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "run_plan", interrupted)
    done = run("bench", "--out", "o.jsonl")
    assert done.exit_code == 130
    assert "what has run is in o.jsonl; --resume goes on from there" in done.stderr


def test_a_full_disk_is_a_message(runs, monkeypatch):
    def no_room(*_):
        raise JournalError("o.jsonl cannot be written: No space left on device")

    monkeypatch.setattr(command, "run_plan", no_room)
    done = run("bench", "--out", "o.jsonl", "--device", "cpu")
    assert done.exit_code == 3
    assert "No space left on device; --resume goes on" in done.stderr


def test_lines_that_cannot_be_read_are_told(tmp_path):
    path = write(tmp_path / "rows.jsonl", [make_row()])
    path.write_text(path.read_text() + '{"operator": "ge')
    done = run("bench", "--from", str(path))
    assert done.exit_code == 0
    assert done.stderr == f"warning: 1 line of {path} cannot be read\n"


@pytest.mark.parametrize("option", ["--list", "--launch"])
def test_a_device_that_is_none_is_a_mistake_whatever_is_asked_for(option, runs):
    done = run("bench", option, "--device", "toaster")
    assert done.exit_code == 2
    assert done.stderr.startswith("error: --device toaster")


def test_a_closed_pipe_of_the_lines_does_not_end_a_run(runs):
    told: list[Job] = []

    class Closed(ProgressLines):
        def started(self, job: Job) -> None:
            told.append(job)
            raise SystemExit(1)  # as rich's console does

    jobs = make_plan(SUITE, Options(device="cpu"))
    listener = SafeListener([Closed(jobs, Console(file=io.StringIO()))])
    for job in jobs[:2]:
        listener.tell(methodcaller("started", job))
    assert told == [jobs[0]]


def test_exit_codes():
    ours = fail(make_row(), Cause.CRASH, "")
    theirs = replace(ours, owner=make_rows()[2].owner)
    harness = fail(make_row(), Cause.EXCEPTION, "", Status.HARNESS_FAILED)
    absent = fail(make_row(), Cause.NOT_INSTALLED, "", Status.UNAVAILABLE)
    assert exit_code([make_row(), theirs, absent]) == 0
    assert exit_code([make_row(), ours]) == 1
    assert exit_code([make_row(), harness]) == 3
    assert exit_code([harness, ours]) == 1
