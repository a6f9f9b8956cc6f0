"""Blocks of Python on pages that no other test runs: each does what the page says of it."""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from examples.softmax import softmax
from tilesmith.cli.main import app
from tilesmith.ir.ops.rearrangement import Sort
from tools.site.pages import DOCS, ROOT

TESTED = {
    *("accuracy", "benchmarks", "explorer", "facts", "index", "indexing", "tuning"),
    *("export", "shapes", "visible"),
}
"""Pages of docs/ with blocks of Python: the first seven have tests of their own."""


def python_blocks(path: Path) -> list[str]:
    text = path.read_text(encoding="utf-8")
    return [dedent(block) for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL)]


def test_every_page_with_python_is_known():
    found = {path.stem for path in DOCS.glob("*.md") if python_blocks(path)}
    assert found == TESTED


def test_a_package_is_imported_and_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (block,) = python_blocks(DOCS / "export.md")
    monkeypatch.chdir(tmp_path)
    words = ["export", "examples.softmax:softmax", "--args", "randn(4096, 4096)"]
    done = CliRunner().invoke(app, [*words, "--target", "cpu", "-o", "softmax_package"])
    assert done.exit_code == 0, done.output
    monkeypatch.syspath_prepend(str(tmp_path))
    # Other tests make packages of this name.
    for name in [name for name in sys.modules if name.partition(".")[0] == "softmax_package"]:
        monkeypatch.delitem(sys.modules, name)
    scope: dict[str, Any] = {"torch": torch}
    exec(block, scope)
    x = torch.randn(4096, 4096)
    assert torch.equal(scope["softmax"](x), softmax(x))


def test_sizes_decide_as_the_file_of_shapes_says():
    (block,) = python_blocks(DOCS / "shapes.md")
    scope: dict[str, Any] = {}
    exec(block, scope)
    assert [scope["key_row_softmax"](torch.empty(1, n)) for n in (4047, 4048)] == [0, 1]


def test_a_profiler_and_a_prompt_show_what_the_page_says(capsys: pytest.CaptureFixture[str]):
    profiled, prompt, edited = python_blocks(DOCS / "visible.md")
    x = torch.randn(64, 100)
    softmax(x)
    exec(profiled, {"torch": torch, "softmax": softmax, "x": x})
    assert "tilesmith::softmax" in capsys.readouterr().out
    shown = [line for line in prompt.splitlines() if not line.startswith(">>>")]
    assert repr(softmax).partition(", bound")[0] == shown[0].partition(", bound")[0]
    # Which vectors and blocks there are depends on the machine.
    machine = re.compile(r"on cpu\S*, Config\([^)]*\)")
    assert machine.sub("", repr(softmax.bind((x,)))) == machine.sub("", shown[1])
    found = (ROOT / "tests/typed/wrong_uses.py").read_text()
    named = re.findall(r'no parameter named "(\w+)"', edited)
    assert [name for name in named if f"{name}=" not in found] == []


def test_the_op_that_contributors_are_shown_is_the_one_that_is_there():
    (block,) = python_blocks(ROOT / "CONTRIBUTING.md")
    lines = set(inspect.getsource(Sort).splitlines())
    # Its docstring goes on.
    shown = [line.removesuffix('"""') for line in block.rstrip().splitlines()]
    assert [line for line in shown if line not in lines] == []
