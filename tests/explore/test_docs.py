"""The examples of docs/explorer.md run, and the page names every option of the command."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from typer.testing import CliRunner

from tilesmith.cli.main import app, load_command

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "explorer.md").read_text()


def test_the_examples_run_in_order(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {}
    for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(code, namespace)
    assert (tmp_path / "page.html").exists()


def test_the_command_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    (line,) = re.findall(r"```bash\n(.*?)\n```", PAGE, re.DOTALL)
    words = shlex.split(line)[1:]
    words[-1] = str(tmp_path / "page.html")
    done = CliRunner().invoke(app, [*words, "--device", "cpu"])
    assert done.exit_code == 0, done.output
    assert "page.html (" in done.stdout


def test_mistakes_are_messages(tmp_path):
    command = ["explore", str(ROOT / "examples/softmax.py:softmax"), "--args", "randn(8, 8)"]
    for extra, words in (
        (["--config", "{"], "--config"),
        (["--beside", "[1]"], "--beside"),
        (["-o", str(tmp_path)], "cannot be written"),
        (["-o", str(tmp_path / "new" / "page.html")], "there is no folder"),
        (["--target", "cuda:90", "--measure"], "is not here"),
    ):
        done = CliRunner().invoke(app, [*command, "--device", "cpu", *extra])
        assert done.exit_code == 2, done.output
        assert words in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_options_are_on_the_page():
    shared = {"args", "inputs", "device", "seed", "kernel"}
    options = {str(item.name) for item in load_command("explore").params} - shared
    named = {"output": "-o", **{name: f"--{name}" for name in options - {"output"}}}
    assert [option for option in named.values() if f"`{option}" not in PAGE] == []
