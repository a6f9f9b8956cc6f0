"""``tilesmith dispatch`` and ``tilesmith record``: files of arguments, and their mistakes."""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import tilesmith
from examples.softmax import softmax
from tilesmith.cli.dispatch import command
from tilesmith.cli.dispatch.shapes_file import flags_of_lines, line_of
from tilesmith.cli.main import app
from tilesmith.cli.recording import recorded_calls, write_calls
from tilesmith.lab.workload.argument_text import parse_arguments

RUN = CliRunner()


@dataclass(frozen=True)
class Given:
    """Flags of a command that takes any arguments."""

    args: str = ""
    inputs: str = ""

    def load(self) -> None:
        parse_arguments(self.args)


@pytest.mark.parametrize(
    "args",
    [
        (torch.randn(3, 4), 2, None, "text", True, 1.5),
        (torch.randn(3, 4).half().T, torch.zeros(5, dtype=torch.int64)),
        (torch.randn(2, 3, 4, 5).permute(2, 0, 3, 1), [torch.ones(2), torch.ones(())]),
        (torch.randn(1, 4).bfloat16(), (3,)),
    ],
    ids=["plain", "transposed", "permuted", "bfloat16"],
)
def test_lines_give_the_same_arguments_again(args):
    again = parse_arguments(line_of(args)).positional
    for given, found in zip(args, again, strict=True):
        listed = zip(given, found) if isinstance(given, list) else [(given, found)]
        for left, right in listed:
            if isinstance(left, torch.Tensor):
                assert (left.dtype, left.shape) == (right.dtype, right.shape)
                assert left.stride() == right.stride()
            else:
                assert left == right


def test_what_has_no_line():
    with pytest.raises(ValueError, match="gaps or repeats"):
        line_of([torch.randn(4, 4)[:, :2]])
    with pytest.raises(ValueError, match="a object has no text"):
        line_of([object()])


def test_calls_are_recorded(tmp_path: Path):
    with recorded_calls() as calls:
        for rows in (2, 3, 3):
            softmax(torch.randn(rows, 5))
        softmax(torch.randn(4, 8)[:, :5])
    softmax(torch.randn(9, 5))
    write_calls(calls, tmp_path)
    lines = (tmp_path / "softmax.txt").read_text().splitlines()
    assert lines[0] == "randn(3, 5, dtype=float32)  # 2 calls"
    assert lines[1] == "randn(2, 5, dtype=float32)  # 1 call"
    assert lines[2].startswith("# a tensor with strides (8, 1)")
    assert len(lines) == 3


def test_kernels_of_one_name_have_files_of_their_own(tmp_path: Path):
    other = tilesmith.kernel(softmax.fn)
    with recorded_calls() as calls:
        softmax(torch.randn(2, 5))
        other(torch.randn(3, 5))
    write_calls(calls, tmp_path)
    assert (tmp_path / "softmax.txt").read_text().startswith("randn(2, 5")
    assert (tmp_path / "softmax_2.txt").read_text().startswith("randn(3, 5")


def test_what_was_recorded_as_json(tmp_path: Path):
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, torch\nfrom examples.softmax import softmax\n"
        "for rows in (2, 3, 3): softmax(torch.randn(rows, 5))\n"
        "softmax(torch.randn(4, 8)[:, :5])\nprint(sys.argv[1:])\n"
    )
    # What follows the script is the script's.
    words = ["record", "--json", "-o", str(tmp_path), str(script), "--json"]
    ended = RUN.invoke(app, words)
    assert ended.exit_code == 0, ended.output
    own, told = ended.stdout.splitlines()
    assert own == "['--json']"
    (file,) = json.loads(told)["files"]
    assert file["file"] == str(tmp_path / "softmax.txt")
    assert file["shapes"][:2] == [
        {"arguments": "randn(3, 5, dtype=float32)", "calls": 2},
        {"arguments": "randn(2, 5, dtype=float32)", "calls": 1},
    ]
    assert file["shapes"][2]["problem"].startswith("a tensor with strides (8, 1)")
    script.write_text("")
    assert json.loads(RUN.invoke(app, ["record", "--json", str(script)]).stdout) == {"files": []}
    assert "no kernel was called" in RUN.invoke(app, ["record", str(script)]).stderr


@dataclass(frozen=True)
class Called:
    """Stands for a kernel."""

    name: str
    text: str


def test_a_name_with_a_number_keeps_its_file(tmp_path: Path):
    calls: Any = {
        Called(name, text): Counter({text: 1})
        for name, text in (("softmax", "a"), ("softmax", "b"), ("softmax_2", "c"))
    }
    write_calls(calls, tmp_path)
    found = {path.name: path.read_text()[0] for path in tmp_path.iterdir()}
    assert found == {"softmax.txt": "a", "softmax_3.txt": "b", "softmax_2.txt": "c"}


def test_record_says_before_the_script_runs_that_it_cannot_write(tmp_path: Path):
    script, place = tmp_path / "script.py", tmp_path / "file"
    script.write_text("raise RuntimeError('it ran')\n")
    place.write_text("in the way")
    ended = RUN.invoke(app, ["record", "-o", str(place), str(script)])
    assert ended.exit_code == 2
    assert f"{place} cannot be written to: File exists" in ended.output
    assert "it ran" not in ended.output


def test_what_record_cannot_write_is_printed(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    (tmp_path / "softmax.txt").mkdir()
    write_calls({softmax: Counter({"randn(2, 5)": 3})}, tmp_path)
    told = capfd.readouterr().err
    assert "softmax.txt cannot be written: Is a directory" in told
    assert "randn(2, 5)  # 3 calls" in told


def test_a_string_may_hold_what_begins_comments(tmp_path: Path):
    path = tmp_path / "shapes.txt"
    path.write_text("""randn(4, 4), "a # b"  # two of them\n""")
    (flags,) = flags_of_lines(Given(), str(path))
    assert flags.args == 'randn(4, 4), "a # b"'


@pytest.mark.parametrize("command", ["dispatch", "export"])
def test_mistakes_in_a_file_of_shapes_have_their_line(tmp_path: Path, command: str):
    path = tmp_path / "shapes.txt"
    path.write_text("# a comment\nrandn(4, 4)\n\nrandn(4, )oops\n")
    out = ["-o", str(tmp_path / "package")]
    ended = RUN.invoke(app, [command, "examples.softmax:softmax", "--shapes", str(path), *out])
    assert ended.exit_code == 2
    assert f"{path}, line 4" in ended.output
    path.write_text("randn(4, 4), 3\n")
    ended = RUN.invoke(app, [command, "examples.softmax:softmax", "--shapes", str(path), *out])
    assert ended.exit_code == 2
    assert f"{path}, line 1" in ended.output
    path.write_text("# nothing\n")
    ended = RUN.invoke(app, [command, "examples.softmax:softmax", "--shapes", str(path), *out])
    assert "has no arguments" in ended.output
    assert not (tmp_path / "package").exists()


def test_dispatch_needs_a_file():
    ended = RUN.invoke(app, ["dispatch", "examples.softmax:softmax"])
    assert ended.exit_code == 2
    assert "tilesmith record" in ended.output
    ended = RUN.invoke(app, ["dispatch", "examples.softmax:softmax", "--shapes", "nowhere.txt"])
    assert "nowhere.txt" in ended.output


@dataclass(frozen=True)
class Decided:
    """What a search of shapes found."""

    path: Path

    def file_text(self) -> str:
        return "new"

    def record(self) -> dict[str, float]:
        return {"loss": 0.5}

    def report(self) -> str:
        return "half"


@pytest.mark.parametrize("option", [[], ["--json"]])
def test_a_decision_takes_the_place_of_the_one_before_at_once(tmp_path, monkeypatch, option):
    # Calls in other processes read it as soon as it changes: they must not see a half of it.
    path, before, shapes = (tmp_path / name for name in ("decision.py", "before.py", "shapes.txt"))
    shapes.write_text("randn(4, 4)\n")
    path.write_text("old")
    os.link(path, before)
    monkeypatch.setattr(command, "tune_shapes", lambda *_: Decided(path))
    ended = RUN.invoke(
        app, ["dispatch", "examples.softmax:softmax", "--shapes", str(shapes), *option]
    )
    assert ended.exit_code == 0, ended.output
    assert (path.read_text(), before.read_text()) == ("new", "old")
    expected = json.dumps({"file": str(path), "loss": 0.5}) if option else f"half\n\n{path}"
    assert ended.stdout.strip() == expected


def test_a_page_that_is_not_written_needs_no_folder(tmp_path):
    words = ["explore", "examples.softmax:softmax", "--args", "randn(4, 8)", "--json"]
    ended = RUN.invoke(app, [*words, "-o", str(tmp_path / "nowhere" / "page.html")])
    assert ended.exit_code == 0, ended.output
    assert json.loads(ended.stdout)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "arguments", [["dispatch", "--shapes", "s.txt"], ["explore", "--args", "1"]]
)
def test_a_folder_is_no_file_to_write_and_is_refused_first(tmp_path, arguments):
    name, *options = arguments
    ended = RUN.invoke(app, [name, "examples.softmax:softmax", *options, "-o", str(tmp_path)])
    assert ended.exit_code == 2
    assert f"{tmp_path} cannot be written: it is a folder" in ended.output
