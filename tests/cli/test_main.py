"""What holds for all commands: their help, and modules that cannot be asked for a kernel."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tilesmith.cli.main import COMMANDS, app, load_command

SOURCES = Path(__file__).parents[2] / "src"


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_help_fits_a_terminal_and_leaves_nothing_out(name):
    arguments = [name, "--help"] if name else ["--help"]
    result = CliRunner(env={"COLUMNS": "80"}).invoke(app, arguments)
    assert result.exit_code == 0
    assert max(map(len, result.stdout.splitlines())) <= 80
    # `[ARGS]...` and `{files}...` may be repeated; other dots stand for words that are cut off.
    assert not re.search(r"…|[^\]}]\.\.\.$", result.stdout, re.MULTILINE)


def test_the_version_is_told():
    assert re.fullmatch(r"tilesmith \S.*\n", CliRunner().invoke(app, ["--version"]).stdout)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_of_commands_has_their_own_first_sentence(name):
    assert load_command(name).get_short_help_str(100) == COMMANDS[name][1]


@pytest.mark.parametrize(
    "arguments", [["--help"], [], ["run", "--help"], ["cache", "show", "--cache-dir", "."]]
)
def test_what_needs_no_torch_does_not_load_it(arguments, tmp_path):
    code = (
        f"import sys; sys.path.insert(0, {str(SOURCES)!r})\n"
        "from tilesmith.cli.main import app\n"
        "try:\n    app()\n"
        "finally:\n    print('loaded:', *{'torch', 'numpy', 'triton'} & sys.modules.keys())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines()[-1] == "loaded:", done.stderr


def test_a_command_with_a_typing_mistake_gets_a_suggestion():
    result = CliRunner().invoke(app, ["tuen"])
    assert result.exit_code == 2
    assert "No such command 'tuen'. Did you mean 'tune'" in result.stderr


def test_a_module_that_ends_the_program_is_a_message(tmp_path, monkeypatch):
    for name in ("path", "meta_path"):
        monkeypatch.setattr(sys, name, list(getattr(sys, name)))
    script = tmp_path / "script_without_guard.py"
    script.write_text("import sys\nsys.exit(3)\n")
    result = CliRunner().invoke(app, ["facts", f"{script}:kernel", "--args", "randn(3)"])
    assert result.exit_code == 2
    assert result.stderr == f"error: {script} called sys.exit(3)\n"


@pytest.mark.parametrize("command", ["facts", "explain"])
def test_a_target_that_is_none_is_a_message(command):
    arguments = [command, "nowhere:kernel", "--args", "randn(3)", "--target", "toaster"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith("error: --target: unknown target 'toaster'")
