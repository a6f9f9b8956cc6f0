"""``tilesmith bench`` and ``compare`` given nonsense: messages, and no tracebacks."""

from __future__ import annotations

import errno
import json
import os
import sys
import tempfile
from pathlib import Path

import pytest

from tests.bench.made_up_rows import make_row
from tests.cli.test_bench import run, runs, write
from tilesmith.bench.plan import PlanError
from tilesmith.bench.run import scratch_folder
from tilesmith.cli.output import SideConsole, is_shown, tell

__all__ = ["runs"]
CASE = "from tilesmith.bench.case import Operator, Suite\n"
SUITES = {
    "syntax_error": ("def suite(:", "syntax_error.py:1: invalid syntax"),
    "raises": ("def suite():\n    raise RuntimeError('boom')", "raised RuntimeError: boom at "),
    "lacks": ("import no_such_library", "No module named 'no_such_library' at "),
    "exits": ("import sys\nsys.exit(7)", "sys.exit(7); a suite must only return"),
    "has_none": (f"{CASE}def suite():\n    return Suite('x', None)", "expected Operators in its"),
    "has_three": (f"{CASE}def suite():\n    return Suite('x', [3])", "expected Operators in its"),
}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--metrics", ","], "--metrics ',': expected names with commas"),
        (["--metrics", ""], "--metrics: expected some of latency, speedup"),
        (["--only", " , "], "expected names with commas between them"),
        (["--kernel", "["], "--kernel [: there are gemm, norm"),
        (["--input-id", "-1"], "-1 is no number; expected such as 0,3"),
        (["--input-id", "²"], "is no number"),
        (["--input-id", "٣"], "is no number"),
        (["--input-shard", "1/"], "expected M/N with 1 <= M <= N, such as 1/4"),
        (["--input-shard", "0/4"], "expected M/N"),
        (["--dtype", "foo"], "--dtype foo: there are bf16"),
        (["--backend", "foo"], "--backend foo: there are auto, triton, cpu, reference"),
        (["--device", "cuda:0"], "did you mean cuda?"),
        (["--timeout", "inf"], "--timeout must be more than 0 seconds, and finite"),
        (["--tune-budget", "inf"], "--tune-budget must be 0 seconds or more"),
        (["--memory-limit", "inf"], "--memory-limit must be 0 GB or more"),
        (["--impl", ".x:f"], "expected [operator=]module:function"),
        (["--impl", "no such:f"], "expected [operator=]module:function"),
        (["--resume"], "name it with --out"),
        (["--retry-failed"], "--retry-failed goes with --resume --out FILE"),
    ],
)
@pytest.mark.usefixtures("runs")
def test_nonsense_is_a_message(arguments: list[str], message: str) -> None:
    done = run("bench", *arguments)
    assert done.exit_code == 2, done.stdout
    assert done.stderr.startswith("error: ")
    assert message in done.stderr


@pytest.mark.parametrize("number", ["nan", "-1", "x", ""])
@pytest.mark.parametrize("option", ["--timeout", "--tune-budget", "--memory-limit", "--num-inputs"])
def test_what_is_no_number_is_a_message(option: str, number: str) -> None:
    done = run("bench", option, number)
    assert done.exit_code == 2
    assert option in done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="names of files")
@pytest.mark.parametrize("name", SUITES)
def test_a_suite_that_cannot_be_loaded_says_why(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, message = SUITES[name]
    (tmp_path / f"{name}.py").write_text(text + "\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, name, raising=False)
    done = run("bench", "--list", "--suite", name)
    sys.modules.pop(name, None)
    assert done.exit_code == 2, done.stderr
    assert done.stderr.startswith(f"error: --suite {name}")
    assert message in done.stderr


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("../x", "expected the name of a module"),
        (".", "expected the name of a module"),
        ("mine.py", "name the module instead of its file: --suite mine"),
    ],
)
def test_a_suite_is_named_as_a_module(name: str, message: str) -> None:
    done = run("bench", "--list", "--suite", name)
    assert done.exit_code == 2
    assert message in done.stderr


@pytest.mark.parametrize(
    "content", [b"", b'{"operator": "ge', b"\xff\xfe\0", b"[1]\n", b'{"run": 5}']
)
@pytest.mark.parametrize("command", ["bench", "compare"])
def test_files_of_something_else_are_a_message(
    command: str, content: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(content)
    done = (
        run("bench", "--from", str(path)) if command == "bench" else run(command, *2 * [str(path)])
    )
    assert done.exit_code == 2
    assert "has no rows of a benchmark; expected a file as tilesmith bench --out" in done.stderr


@pytest.mark.parametrize("name", ["nowhere.jsonl", "", "file/rows.jsonl"])
def test_files_that_cannot_be_read_are_a_message(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for command in (["bench", "--from"], ["compare", str(tmp_path)]):
        done = run(*command, str(tmp_path / name))
        assert done.exit_code == 2
        assert "expected a file as tilesmith bench --out writes it" in done.stderr


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read all")
def test_a_file_without_permission_is_a_message(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl", [make_row()])
    path.chmod(0)
    done = run("bench", "--from", str(path))
    assert done.exit_code == 2
    assert "Permission denied" in done.stderr


def test_numbers_that_cannot_be_are_no_traceback(tmp_path: Path) -> None:
    odd = [
        make_row(input_label="a", latency_ms=-1.0, speedup=-2.0, baseline_ms=0.0),
        make_row(input_id=1, input_label="b", latency_ms=0.0, speedup=0.0),
        make_row(input_label="[bold]", operator="../x", environment={"load": "high"}),
    ]
    path = str(write(tmp_path / "rows.jsonl", odd))
    assert run("bench", "--from", path, "--svg", str(tmp_path / "p")).exit_code == 0
    assert (tmp_path / "p" / "speedups-.._x.svg").exists()
    done = run("compare", path, path, "--all", "--json")
    assert [change["kind"] for change in json.loads(done.stdout)["changes"]] == ["within noise"] * 3


def test_a_report_that_fails_after_a_run_says_where_the_rows_are(runs, tmp_path: Path) -> None:
    options = ["--only", "eager", "--device", "cpu", "--out", "o.jsonl", "--csv", str(tmp_path)]
    done = run("bench", *options)
    assert done.exit_code == 2
    assert "the rows are in o.jsonl, and --from makes reports of them" in done.stderr


def test_progress_that_nobody_reads_leaves_standard_output_alone(
    capfd: pytest.CaptureFixture[str],
) -> None:
    read, written = os.pipe()
    os.close(read)
    console = SideConsole()
    with os.fdopen(os.dup(written), "w") as file:
        console.file = file
        console.print("row 1")
        console.print("row 2")
        os.dup2(os.open(os.devnull, os.O_WRONLY), file.fileno())
    os.close(written)
    os.write(1, b"results")
    assert capfd.readouterr().out == "results"


def test_standard_output_that_is_full_is_a_message(capsys: pytest.CaptureFixture[str]) -> None:
    def fail(number: int) -> None:
        raise OSError(number, os.strerror(number))

    assert is_shown(lambda: None)
    assert not is_shown(lambda: fail(errno.ENOSPC))
    assert "error: standard output cannot be written: No space left" in capsys.readouterr().err
    with pytest.raises(BrokenPipeError):
        is_shown(lambda: fail(errno.EPIPE))


def test_telling_nobody_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr("typer.echo", fail)
    tell("a line")


def test_files_are_written_even_if_the_results_have_no_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: object) -> None:
        raise SystemExit(1)  # as rich's console does

    monkeypatch.setattr("tilesmith.cli.bench.print_summary", gone)
    path = write(tmp_path / "rows.jsonl", [make_row()])
    assert run("bench", "--from", str(path), "--csv", str(tmp_path / "a.csv")).exit_code == 1
    assert (tmp_path / "a.csv").exists()


def test_no_room_for_temporary_files_is_a_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "rows.jsonl" / "nowhere"))
    (tmp_path / "rows.jsonl").write_text("")
    with pytest.raises(PlanError, match=r"no temporary folder: .* set TMPDIR"), scratch_folder():
        pass
