"""``tilesmith export``: what it writes, and mistakes of the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tilesmith.cli.main import app

SOFTMAX = ["export", "examples.softmax:softmax"]


def test_args_and_a_file_of_shapes(tmp_path: Path) -> None:
    shapes = tmp_path / "shapes.txt"
    shapes.write_text("# rows, columns\nrandn(4, 9)\n\nrandn(3, 5)  # short\n")
    folder = tmp_path / "softmax_package"
    more = ["--args", "randn(2, 7)", "--shapes", str(shapes), "--output", str(folder)]
    done = CliRunner().invoke(app, [*SOFTMAX, *more])
    assert done.exit_code == 0, done.stderr
    assert "manifest.json" in done.stdout
    again = [*SOFTMAX, "--args", "randn(2, 7)", "-o", str(tmp_path / "second"), "--json"]
    found = json.loads(CliRunner().invoke(app, again).stdout)
    assert found["bytes"]["manifest.json"] > 0
    codes = json.loads((folder / "manifest.json").read_text())["code"]
    arguments = [code["arguments"] for code in codes]
    assert arguments == ["x: float32[2, 7]", "x: float32[4, 9]", "x: float32[3, 5]"]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--args", "randn(4, 9)"], "name the package's folder with --output"),
        (["-o", "p"], "give the kernel's arguments with --args"),
        (["--args", "randn(4, 9)", "-o", "p", "--target", "tpu"], "--target: unknown target 'tpu'"),
        (["--args", "randn(4, 9)", "-o", "p", "--config", "{"], "--config: "),
        (["--args", "randn(4, 9)", "-o", "p-q"], "is no name of a Python package"),
        (["-o", "p", "--shapes", "nowhere.txt"], "--shapes: "),
        (["-o", "p", "--shapes", "empty.txt"], "empty.txt has no arguments"),
        (["-o", "p", "--shapes", "wrong.txt"], "wrong.txt, line 3: "),
    ],
    ids=lambda item: "" if isinstance(item, list) else item[:12],
)
def test_mistakes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], problem: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty.txt").write_text("# nothing\n")
    Path("wrong.txt").write_text("randn(4, 9)\n\nrandn(4, nine)\n")
    done = CliRunner().invoke(app, [*SOFTMAX, *words])
    assert done.exit_code in (1, 2)
    assert problem in done.stderr
    assert not Path("p").exists()
