"""What holds for all commands: their help, and modules that cannot be asked for a kernel."""

from __future__ import annotations

import re
import sys

import pytest
from typer.testing import CliRunner

from tilesmith.cli.main import app

COMMANDS = ("", "run", "tune", "facts", "explain", "accuracy", "bench", "compare", "cache")


@pytest.mark.parametrize("name", COMMANDS)
def test_help_fits_a_terminal_and_leaves_nothing_out(name):
    arguments = [name, "--help"] if name else ["--help"]
    result = CliRunner(env={"COLUMNS": "80"}).invoke(app, arguments)
    assert result.exit_code == 0
    assert max(map(len, result.stdout.splitlines())) <= 80
    # `[ARGS]...` may be repeated; other dots stand for words that are cut off.
    assert not re.search(r"…|[^\]]\.\.\.$", result.stdout, re.MULTILINE)


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
