"""``tilesmith doctor``, ``new`` and ``completion``."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

import tilesmith
from tilesmith.checkup.report import Finding
from tilesmith.cli.main import COMMANDS, app
from tilesmith.cli.setup.completion import options_by_command
from tilesmith.cli.setup.doctor import finding_lines


def invoke(*arguments: str):
    return CliRunner().invoke(app, arguments)


def test_the_doctor_fits_a_screen():
    done = invoke("doctor", "--quick")
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 100
    assert lines[0].startswith("  versions    python 3.")
    assert f", tilesmith {tilesmith.__version__}, " in lines[0]  # of this source, installed or not


def test_the_doctor_as_json():
    found = json.loads(invoke("doctor", "--quick", "--json").stdout)
    assert found["versions"]["is_good"]


def test_what_is_wrong_is_marked_and_what_helps_stands_below():
    lines = finding_lines(Finding("cache", "here", is_good=False, hint="chmod"))
    assert lines == ["! cache       here", "              -> chmod"]


def test_the_doctor_of_machines_sends_kernels_to_the_one_of_results():
    done = invoke("doctor", "examples.add:add")
    assert done.exit_code == 2
    assert "tilesmith accuracy examples.add:add --args ..." in done.stderr


def test_a_new_kernel_passes_its_own_tests(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert invoke("new", "row_dots.py").exit_code == 0
    spec = importlib.util.spec_from_file_location("row_dots", tmp_path / "row_dots.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "row_dots", module)
    spec.loader.exec_module(module)
    module.test_it_is_right_at_the_edges()
    module.test_it_stays_in_bounds_and_programs_do_not_race()
    done = invoke("lint", "row_dots.py")
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["kernel.txt"], "its name must end in .py"),
        (["class.py"], "'class' is no name of a function"),
        (["a.py", "--name", "a b"], "'a b' is no name of a function"),
        (["nowhere/a.py"], "there is no folder nowhere"),
    ],
)
def test_files_that_cannot_be_kernels_are_refused(arguments, problem, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = invoke("new", *arguments)
    assert done.exit_code == 2
    assert problem in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_file_that_is_there_stays(tmp_path):
    path = tmp_path / "kernel.py"
    path.write_text("mine")
    assert invoke("new", str(path)).exit_code == 2
    assert path.read_text() == "mine"
    assert invoke("new", str(path), "--force").exit_code == 0
    assert "def kernel(" in path.read_text()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["tu"], ["tune"]),
        (["explain", "--ta"], ["--target"]),
        (["cache", "sh"], []),
        (["cache", "--ye"], ["--yes"]),
        (["doctor", "--"], ["--quick", "--json", "--help"]),
    ],
)
def test_bash_completes(words, expected, tmp_path):
    script = tmp_path / "completion.bash"
    script.write_text(invoke("completion", "bash").stdout)
    code = (
        f"source {script}; COMP_WORDS=(tilesmith {' '.join(words)}); "
        f"COMP_CWORD={len(words)}; _tilesmith; echo ${{COMPREPLY[@]}}"
    )
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == expected


def test_all_shells_know_every_command_and_option():
    every = {flag for options in options_by_command().values() for flag in options}
    assert "cache show" in options_by_command()
    for shell in ("bash", "zsh", "fish"):
        text = invoke("completion", shell).stdout
        assert not [name for name in COMMANDS if name not in text]
        assert not [flag for flag in every if flag.removeprefix("--") not in text]
    done = invoke("completion", "tcsh")
    assert done.exit_code == 2
    assert "expected bash, zsh, fish" in done.stderr
