"""The commands of docs/benchmarks.md run, in order, in one folder; options are all on the page."""

from __future__ import annotations

import json
import re
import shlex
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from tilesmith.bench import run as runs
from tilesmith.bench.plan import METRICS, Options
from tilesmith.cli import bench as bench_command
from tilesmith.cli import compare as compare_command

TEXT = (Path(__file__).parents[2] / "docs" / "benchmarks.md").read_text()
app = typer.Typer()
bench_command.add_to(app)
compare_command.add_to(app)


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", TEXT, re.S)


def commands() -> list[str]:
    return [line for block in blocks("bash") for line in block.splitlines()]


def run(command: str) -> str:
    """What a command prints; it must succeed."""
    program, *arguments = shlex.split(command)
    assert program == "tilesmith"
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture
def one_server(monkeypatch):
    """Lets all runs fork their processes from one server, which takes seconds to start."""
    with runs.scratch_folder() as folder, runs.WorkerProcesses(Options(), folder) as processes:
        monkeypatch.setattr(runs, "scratch_folder", lambda: nullcontext(folder))
        monkeypatch.setattr(runs, "WorkerProcesses", lambda *_: nullcontext(processes))
        yield


@pytest.mark.usefixtures("one_server")
def test_the_commands_of_the_page_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TILESMITH_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "path", list(sys.path))
    for block in blocks("python"):
        name = block.partition("\n")[0].removeprefix("# ")
        (tmp_path / name).write_text(block)
        monkeypatch.delitem(sys.modules, name.removesuffix(".py"), raising=False)
    printed = list(map(run, commands()))
    assert len(printed) == 10
    assert printed[0].startswith("rms_norm\n")
    assert "2 rows: 2 ok" in printed[1]
    assert (tmp_path / "report.html").exists()
    assert (tmp_path / "pictures" / "speedups.svg").exists()
    assert len(json.loads(printed[5])["changes"]) == 2
    assert "of 1 row" in printed[6]
    assert printed[7] == printed[6]
    assert (tmp_path / "board.html").exists()
    assert "mine.normalize" in printed[8]
    assert "1 row: 1 ok" in printed[9]


def test_every_option_is_on_the_page():
    group = typer.main.get_command(app)
    options = {
        name
        for command in ("bench", "compare")
        for parameter in group.commands[command].params  # type: ignore[attr-defined]
        for name in parameter.opts
        if name.startswith("--") and name not in ("--help", "--cudagraph")
    }
    assert len(options) > 25
    assert [name for name in sorted(options) if name not in TEXT] == []
    assert [metric for metric in METRICS if metric not in TEXT] == []
