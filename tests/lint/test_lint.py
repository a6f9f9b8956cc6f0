"""What lint says of kernels that fail, and that it says nothing of those that work."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.errors.all_mistakes import CASES
from tilesmith.cli.main import app
from tilesmith.diagnostics.catalogue import BaseError
from tilesmith.jit.kernel import Kernel
from tilesmith.lint.file_checks import check_file

ROOT = Path(__file__).parents[2]
SILENT = {"tests/conformance/test_rejections.py"}
"""Files whose kernels fail on purpose."""

LEAST = {"statements": 12, "names": 6, "loops": 7, "barriers": 3, "definitions": 1}
"""Topics, and how many of their mistakes the text alone tells."""

HEAD = """\
import torch
import tilesmith
import tilesmith.language as hl

"""
LOOP = """
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = {}
    return out
"""


def lint_text(tmp_path: Path, text: str) -> list[tuple[str, int]]:
    path = tmp_path / "kernels.py"
    path.write_text(HEAD + text)
    return [(one.kind, one.loc.line) for one in check_file(path)]


def kernel(decorator: str = "@tilesmith.kernel", value: str = "x[tile] + 1") -> str:
    return f"{decorator}\ndef k(x):" + LOOP.format(value)


@pytest.mark.parametrize("topic", LEAST)
def test_what_lint_reports_is_what_a_call_raises(topic):
    cases: list[Any] = [case for case in CASES[topic] if isinstance(case.call, Kernel)]
    files = {case.call.fn.__code__.co_filename for case in cases}
    found = {one.loc.function: one for file in files for one in check_file(Path(file))}
    agreed = 0
    for case in cases:
        mistake = found.get(case.call.name)
        if mistake is None:
            continue
        with pytest.raises(BaseError) as caught:
            case.call(*case.args, **case.keywords)
        assert mistake.kind == type(caught.value).__name__
        assert mistake.text.splitlines()[0] == str(caught.value).splitlines()[0]
        assert caught.value.loc is None or mistake.loc.line == caught.value.loc.line
        agreed += 1
    assert (
        agreed >= {"statements": 12, "names": 6, "loops": 7, "barriers": 3, "definitions": 1}[topic]
    )


@pytest.mark.parametrize("folder", ["examples", "tests/conformance", "benchmarks"])
def test_kernels_that_work_get_no_alarm(folder):
    files = [path for path in sorted((ROOT / folder).rglob("*.py"))]
    files = [path for path in files if path.relative_to(ROOT).as_posix() not in SILENT]
    assert len(files) > 10
    found = {str(path): check_file(path) for path in files}
    assert {path: mistakes for path, mistakes in found.items() if mistakes} == {}


def test_nothing_of_the_file_is_run(tmp_path):
    text = "raise SystemExit('run')\n\n@tilesmith.kernel\ndef k(x, n=print('run')):"
    assert lint_text(tmp_path, text + LOOP.format("x[tiles]")) == [("UndefinedVariable", 11)]


@pytest.mark.parametrize(
    ("text", "kind", "line"),
    [
        (kernel("@tilesmith.kernel(static_shape=False)"), "UnknownSettingError", 5),
        (kernel("@tilesmith.kernel(num_threads=-1)"), "SettingValueError", 5),
        (
            kernel("@tilesmith.kernel(config=tilesmith.Config(block_sizs=[8]))"),
            "InvalidConfigKeys",
            5,
        ),
        (kernel("@tilesmith.kernel(config={}, configs=[])"), "ConflictingArguments", 5),
        (kernel(value="hl.zeroes([tile])"), "UnknownLanguageFunction", 9),
        (kernel(value="torch.linalg.inv(x[tile])"), "UnsupportedTorchFunction", 9),
        (kernel(value="torch.no_such(x[tile])"), "TorchOpTracingError", 9),
        (kernel(value="torch.nonzero(x[tile])"), "DataDependentOutputShapeNotSupported", 9),
        (kernel(value="missing(x[tile])"), "UndefinedVariable", 9),
        ("def f(:\n", "SyntaxError", 5),
    ],
)
def test_one_mistake(text, kind, line, tmp_path):
    found = lint_text(tmp_path, text)
    assert found == [(kind, line)]


@pytest.mark.parametrize(
    "text",
    [
        kernel(),
        kernel("@helion.kernel").replace("@", "import tilesmith as helion\n@"),
        kernel(value="torch.no_such(x[tile]) if FLAG else x[tile]"),
        kernel("@tilesmith.kernel(config=tilesmith.Config(block_size=[8], split=2))").replace(
            "    out =", "    n = hl.register_tunable('split', FLAG)\n    out ="
        ),
        kernel("@tilesmith.kernel(settings=SETTINGS, config=CONFIG)"),
        kernel("@tilesmith.kernel(block_sizes=1)").replace("tilesmith.kernel", "other.kernel"),
        "from elsewhere import *\n" + kernel(value="torch.exp(x[tile])"),
    ],
)
def test_no_alarm(text, tmp_path):
    assert lint_text(tmp_path, "from elsewhere import SETTINGS, CONFIG, FLAG, other\n" + text) == []


def test_the_command_tells_lines_as_editors_read_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("k.py").write_text(HEAD + kernel(value="x[tiles]"))
    done = CliRunner().invoke(app, ["lint", "k.py", "--short"])
    assert done.exit_code == 1
    assert done.stdout == "k.py:9:23: UndefinedVariable: `tiles` is not defined\n"
    assert done.stderr == "1 mistake in 1 kernel\n"
    whole = CliRunner().invoke(app, ["lint", "."]).stdout
    assert "did you mean `tile`?" in whole
    record = json.loads(CliRunner().invoke(app, ["lint", "k.py", "--json"]).stdout)
    assert (record["line"], record["column"], record["kind"]) == (9, 23, "UndefinedVariable")
    assert CliRunner().invoke(app, ["lint", "no.py"]).exit_code == 2


def test_a_device_function_in_host_code_is_what_a_call_refuses(tmp_path):
    text = "@tilesmith.kernel\ndef k(x):\n    y = hl.arange(3)" + LOOP.format("x[tile]")
    assert lint_text(tmp_path, text) == [("DeviceAPIOnHost", 7)]
