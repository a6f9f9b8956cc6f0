"""``tilesmith accuracy`` as a user runs it."""

from __future__ import annotations

import json
import sys
from itertools import pairwise

import pytest
from typer.testing import CliRunner

import tilesmith.cli.accuracy as command
from tilesmith.cli.accuracy import find_implementations
from tilesmith.cli.kernel_reference import find_kernel
from tilesmith.cli.main import app

MODULE = """
import torch
import tilesmith, tilesmith.language as hl

@tilesmith.kernel
def double(x, scale=2.0):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size()):
        out[tile] = x[tile] * scale
    return out

def double_eager(x):
    return x * 2

def wrong(x):
    out = x * 2
    out[1, 2] += 1
    return out

def exact(x, scale):
    return x * 2

def exact_but_other(x, scale):
    return x * 2.5

@tilesmith.kernel(autotune_baseline_fn=wrong)
def with_baseline(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size()):
        out[tile] = x[tile] * 2
    return out

@tilesmith.kernel
def other(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size()):
        out[tile] = x[tile] * 2
    return out
"""
ARGS = ["--args", "randn(5, 7)", "--device", "cpu", "--configs", "1", "--repeats", "2"]


@pytest.fixture
def file(tmp_path, monkeypatch):
    for name in ("path", "meta_path"):
        monkeypatch.setattr(sys, name, list(getattr(sys, name)))
    path = tmp_path / "doubled_kernels.py"
    path.write_text(MODULE)
    yield path
    sys.modules.pop(path.stem, None)


def run(file, *options, kernel="double"):
    return CliRunner().invoke(app, ["accuracy", f"{file}:{kernel}", *ARGS, *options])


def test_the_report_goes_to_standard_output(file):
    result = run(file, "--against", f"eager,mistaken={file}:wrong")
    assert result.exit_code == 0, result.output
    assert "out: float32, 35 elements compared" in result.stdout
    assert "out[1, 2] is exactly" in result.stdout
    assert "mistaken" in result.stdout
    assert "kernel over repeats: all 2 runs agree" in result.stdout


def test_files_are_written_where_asked(file, tmp_path):
    json_file, svg_file = tmp_path / "found.json", tmp_path / "found.svg"
    result = run(file, "--json", str(json_file), "--svg", str(svg_file))
    assert result.exit_code == 0, result.output
    assert json.loads(json_file.read_text())["kernel"] == "double"
    assert "errors against fp64" in svg_file.read_text()


def test_json_without_a_file_is_all_that_is_printed(file):
    for words in (("--json",), ("--json", "--repeats", "2")):
        assert json.loads(run(file, *words).stdout)["kernel"] == "double"
    first = CliRunner().invoke(app, ["accuracy", "--json", f"{file}:double", *ARGS])
    assert json.loads(first.stdout)["kernel"] == "double"


def test_the_exit_code_tells_whether_the_kernel_is_right(file):
    assert run(file, "--reference", f"{file}:exact").exit_code == 0
    assert run(file, "--reference", f"{file}:exact_but_other").exit_code == 1


def test_eager_is_the_baseline_or_stands_beside_the_kernel(file, monkeypatch):
    kernel = find_kernel(f"{file}:double")
    module = sys.modules[kernel.fn.__module__]
    assert find_implementations("eager", kernel) == {"eager": module.double_eager}
    baseline = find_implementations("eager", find_kernel(f"{file}:with_baseline"))
    assert baseline == {"eager": module.wrong}
    monkeypatch.setattr(command, "compiled", lambda function: ("compiled", function))
    found = find_implementations("compile, eager", kernel)
    assert found == {"compile": ("compiled", module.double_eager), "eager": module.double_eager}


@pytest.mark.parametrize(
    ("against", "message"),
    [
        ("eager", "--against eager: doubled_kernels has no other_eager"),
        ("compile", "--against compile: doubled_kernels has no other_eager; that is what torch"),
        ("fast", "expected eager, compile or module:function"),
        ("kernel=doubled_kernels:wrong", "kernel is taken; give it another name"),
    ],
)
def test_what_cannot_be_found_is_a_usage_error(file, against, message):
    result = run(file, "--against", against, kernel="other")
    assert result.exit_code == 2
    assert message in result.output


def test_inputs_that_need_arguments_are_a_usage_error(file):
    result = CliRunner().invoke(app, ["accuracy", f"{file}:other", "--inputs", f"{file}:wrong"])
    assert result.exit_code == 2
    assert "wrong: it must need no arguments" in result.stderr


def test_a_reference_that_gives_nothing_is_a_usage_error(file):
    file.write_text(MODULE + "\ndef silent(x, scale):\n    return 'nothing'\n")
    result = run(file, "--reference", f"{file}:silent")
    assert result.exit_code == 2
    assert "--reference: the reference returns 0 tensors" in result.stderr


def test_a_file_that_cannot_be_written_is_a_message(file, tmp_path):
    result = run(file, "--json", str(file / "found.json"))
    assert result.exit_code == 2
    assert "cannot be written" in result.stderr
    assert run(file, "--json", str(tmp_path / "new" / "found.json")).exit_code == 0
    assert (tmp_path / "new" / "found.json").is_file()


def test_a_file_that_cannot_be_written_is_told_before_the_work(file, tmp_path, monkeypatch):
    monkeypatch.setattr(command, "diagnose", lambda *_: pytest.fail("it worked in vain"))
    result = run(file, "--svg", str(file / "found.svg"))
    assert result.exit_code == 2
    assert f"{file} cannot be written to: File exists" in result.stderr


def test_written_files_are_told(file, tmp_path):
    place = tmp_path / "found.json"
    assert f"wrote {place}" in run(file, "--json", str(place)).stderr
    assert run(file, "--json", "-").stderr == ""


def test_a_verdict_without_evidence_promises_none(file):
    result = run(file, "--against", f"mistaken={file}:wrong", kernel="with_baseline")
    lines = result.stdout.splitlines()
    for line, following in pairwise(lines):
        assert line != "  - the verdict rests on" or following.startswith("      ")
