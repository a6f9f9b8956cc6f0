"""``tilesmith tune``, ``facts`` and ``explain``: what is printed where, exit codes, mistakes."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.tune.report.searches import make_result
from tilesmith.cli import tune
from tilesmith.cli.main import app
from tilesmith.schedule.config import Config
from tilesmith.tune.result import StopReason

ARGS = ["--args", "randn(32, 48)", "--device", "cpu"]
MODULE = """
import torch
import tilesmith, tilesmith.language as hl

@tilesmith.kernel
def double(x, scale=2.0):
    out = torch.empty_like(x)
    assert x.dim() == 2, f"found {x.dim()} dimensions"
    for tile in hl.tile(x.size()):
        out[tile] = x[tile] * scale
    return out

@tilesmith.kernel(config=tilesmith.Config(block_sizes=[8, 8]))
def pinned(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size()):
        out[tile] = x[tile] + 1
    return out

@tilesmith.kernel(configs=[tilesmith.Config(block_sizes=[8, n]) for n in (8, 16)])
def listed(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size()):
        out[tile] = x[tile] + 1
    return out

def inputs():
    return torch.zeros(4, 8), 3.0

def named_inputs():
    return {"scale": 3.0, "x": torch.zeros(4, 8)}

number = 3
"""


@pytest.fixture(autouse=True)
def own_imports(monkeypatch):
    """What a command changes in its process is undone after the test."""
    for name in ("path", "meta_path"):
        monkeypatch.setattr(sys, name, list(getattr(sys, name)))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in ("helion", "mine", "broken", "lonely"):
            del sys.modules[name]


@pytest.fixture
def module(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TILESMITH_CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "mine.py"
    path.write_text(MODULE)
    return path


class Searches:
    """Stands for the tuner."""

    def __init__(self, result=None):
        self.result = result or make_result()
        self.calls = []

    def __call__(self, bound, arguments, request):
        self.calls.append((bound, arguments, request))
        return self.result


@pytest.fixture
def searches(monkeypatch) -> Searches:
    made = Searches()
    monkeypatch.setattr(tune, "search", made)
    return made


def run(*arguments: str):
    return CliRunner().invoke(app, list(arguments))


def test_the_result_is_one_line_on_standard_output(module, searches):
    done = run("tune", "mine:double", *ARGS)
    assert done.exit_code == 0, done.stderr
    assert done.stdout == make_result().paste_line + "\n"
    assert done.stderr == ""
    ((bound, arguments, request),) = searches.calls
    assert bound.definition.name == "double"
    assert tuple(arguments[0].shape) == (32, 48)
    assert arguments[1] == 2.0
    assert request.budget_s == 15.0
    assert request.is_forced is False


def test_options_reach_the_search(module, searches, tmp_path):
    done = run(
        *("tune", "mine:double", *ARGS, "--budget", "3", "--method", "RandomSearch", "--force"),
        *("--seed", "7", "--report", str(tmp_path / "out"), "--quiet"),
    )
    assert done.exit_code == 0, done.stderr
    request = searches.calls[0][2]
    assert (request.budget_s, request.is_forced) == (3.0, True)
    assert request.keywords == {
        "autotune_random_seed": 7,
        "method": "RandomSearch",
        "autotune_log_level": logging.WARNING,
        "autotune_log": str(tmp_path / "out" / "double"),
    }


def test_why_nothing_was_searched(module, monkeypatch):
    assert "--budget 0 does not search" in run("tune", "mine:double", *ARGS, "--budget", "0").stderr
    assert "has one config in its decorator" in run("tune", "mine:pinned", *ARGS).stderr
    monkeypatch.setenv("TILESMITH_AUTOTUNER", "Luck")
    del sys.modules["mine"]
    assert "unknown search method 'Luck'" in run("tune", "mine:double", *ARGS).stderr
    monkeypatch.delenv("TILESMITH_AUTOTUNER")
    finite = ["--method", "FiniteSearch", "--budget", "1"]
    assert "needs at least 2, not 0" in run("tune", "mine:double", *ARGS, *finite).stderr
    monkeypatch.setenv("TILESMITH_BACKEND", "reference")
    del sys.modules["mine"]
    assert "is interpreted" in run("tune", "mine:double", *ARGS).stderr
    monkeypatch.setenv("TILESMITH_BACKEND", "refrence")
    del sys.modules["mine"]
    done = run("tune", "mine:double", *ARGS)
    assert done.exit_code == 2
    assert done.stderr.startswith("error: setting backend: 'refrence'")


def test_an_effort_is_a_budget(module, searches):
    run("tune", "mine:double", *ARGS, "--effort", "full")
    assert searches.calls[0][2].budget_s == 120.0


def test_the_result_as_json(module, searches, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "double.html").write_text("page")
    done = run("tune", "mine:double", *ARGS, "--json", "--report", "out")
    record = json.loads(done.stdout)
    assert record["kernel"] == "double"
    assert record["ms"] == 0.0581
    assert record["timeline"] == make_result().timeline.seconds
    assert Config.from_dict(record["config"]) == make_result().config
    assert record["report"] == [str(Path("out") / "double.html")]


def test_files_of_the_report_are_named(module, searches, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "double.png").write_text("picture")
    (tmp_path / "out" / "double.csv").write_text("")
    done = run("tune", "mine:double", *ARGS, "--report", "out")
    assert done.stderr == f"report: {Path('out') / 'double.png'}\n"


def test_a_stored_winner_has_no_report(module, searches, tmp_path):
    searches.result = make_result(stop=StopReason.CACHED)
    done = run("tune", "mine:double", *ARGS, "--report", "out")
    assert done.exit_code == 0
    assert done.stderr == "no search, so no report: a winner is stored; --force searches\n"


@pytest.mark.parametrize(
    ("changes", "code", "has_line"),
    [
        ({"stop": StopReason.FINISHED}, 0, True),
        ({"stop": StopReason.CACHED}, 0, True),
        ({"stop": StopReason.INTERRUPTED}, 130, True),
        ({"stop": StopReason.NO_RUNNER, "ms": float("inf")}, 1, False),
    ],
)
def test_exit_codes(changes, code, has_line, module, searches):
    searches.result = make_result(**changes)
    done = run("tune", "mine:double", *ARGS)
    assert done.exit_code == code
    assert bool(done.stdout) == has_line


@pytest.mark.parametrize("name", ["inputs", "named_inputs"])
def test_arguments_may_come_from_a_function(name, module, searches):
    done = run("tune", "mine:double", "--inputs", f"mine:{name}")
    assert done.exit_code == 0, done.stderr
    tensor, scale = searches.calls[0][1]
    assert (tuple(tensor.shape), scale) == ((4, 8), 3.0)


@pytest.mark.parametrize("place", ["mine.py", "mine", "../{folder}/mine.py"])
def test_a_module_or_a_path(place, module, searches):
    place = place.format(folder=module.parent.name)
    done = run("tune", f"{place}:double", *ARGS)
    assert done.exit_code == 0, done.stderr


def test_keywords_are_placed(module, searches):
    done = run("tune", "mine:double", "--device", "cpu", "--args", "scale=0.5, x=zeros(2, 3)")
    assert done.exit_code == 0, done.stderr
    assert searches.calls[0][1][1] == 0.5


def test_the_only_kernel_of_a_file_needs_no_name(tmp_path, searches, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lonely.py").write_text(MODULE.partition("@tilesmith.kernel(config")[0])
    done = run("tune", "lonely.py", *ARGS)
    assert done.exit_code == 0, done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere:double", *ARGS], "no module nowhere"),
        (["mime:double", *ARGS], "did you mean mine"),
        (["nowhere.py:double", *ARGS], "no file nowhere.py; there are: mine.py"),
        (["mine.p:double", *ARGS], "no module mine.p; mine is no package"),
        (["mine:duoble", *ARGS], "mine has no duoble; did you mean double?"),
        (
            ["mine:number", *ARGS],
            "mine:number is no kernel but an int; kernels: double, listed, pinned",
        ),
        (["mine:inputs", *ARGS], "mine:inputs is no kernel but a function"),
        (["mine", *ARGS], "which kernel of mine? kernels: double, listed, pinned"),
        ([":double", *ARGS], "is neither a module nor a .py file"),
        (["mine:double"], "give the kernel's arguments"),
        (["mine:double", *ARGS, "--inputs", "mine:inputs"], "give the kernel's arguments"),
        (["mine:double", "--inputs", "mine:number"], "mine:number is no function but an int"),
        (["mine:double", "--inputs", "mine"], "name the function"),
        (["mine:double", "--args", "randn(3,", "--device", "cpu"], "was never closed"),
        (["mine:double", "--args", "rendn(3)", "--device", "cpu"], "did you mean randn"),
        (["mine:double", "--args", "randn(3)", "--device", "toaster"], "toaster"),
        (["mine:double", *ARGS, "--effort", "none"], "--effort none: expected quick or full"),
        (["mine:double", *ARGS, "--method", "Luck"], "unknown search method 'Luck'"),
    ],
)
def test_mistakes_are_messages(arguments, message, module, searches):
    done = run("tune", *arguments)
    assert done.exit_code == 2
    assert done.stderr.startswith("error: ")
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert not searches.calls


def test_a_mistake_in_arguments_is_pointed_at(module, searches):
    done = run("tune", "mine:double", "--device", "cpu", "--args", "zeros(2, 2), bf17")
    assert done.stderr.splitlines()[1:] == ["  zeros(2, 2), bf17", "               ^^^^"]


def test_too_many_arguments_are_an_error_of_the_kernel(module, searches):
    done = run("tune", "mine:double", "--device", "cpu", "--args", "zeros(2, 2), 1, 2")
    assert done.exit_code == 1
    assert "Too many arguments" in done.stderr


def test_an_exception_of_host_code_shows_the_users_lines_only(module, searches):
    done = run("tune", "mine:double", "--device", "cpu", "--args", "zeros(2)")
    assert done.exit_code == 1
    lines = done.stderr.splitlines()
    assert lines[0].startswith('  File "')
    assert "mine.py" in lines[0]
    assert lines[-1] == "AssertionError: found 1 dimensions"


def test_a_module_that_does_not_import_shows_its_own_lines_only(module, searches):
    module.with_name("broken.py").write_text("import nothing_of_that_name\n")
    for place in ("broken", "broken.py"):
        done = run("tune", f"{place}:double", *ARGS)
        assert done.exit_code == 1
        lines = done.stderr.splitlines()
        assert "broken.py" in lines[0]
        assert lines[-1] == "ModuleNotFoundError: No module named 'nothing_of_that_name'"


def test_a_kernel_with_one_config_has_nothing_to_choose(module):
    done = run("tune", "mine:pinned", *ARGS)
    assert done.exit_code == 2
    assert "--force searches" in done.stderr


def test_interrupting_before_there_is_a_result(module, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(tune, "search", interrupted)
    done = run("tune", "mine:double", *ARGS)
    assert done.exit_code == 130
    assert done.stderr == "interrupted\n"


def test_facts_are_printed_in_the_users_names(module):
    done = run("facts", "mine:double", *ARGS)
    assert done.exit_code == 0, done.stderr
    assert "x[" in done.stdout
    assert "out[" in done.stdout


@pytest.mark.parametrize("target", ["cpu", "cuda:90"])
def test_a_default_is_explained(target, module):
    done = run("explain", "mine:double", *ARGS, "--target", target, "--count", "3")
    assert done.exit_code == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith(f"double on {target}")
    assert lines[1].startswith("default    Config(block_sizes=[")
    assert lines[2].startswith("because    ")
    assert "% of the roofline (" in lines[3]
    assert lines[4].startswith("parts      compute ")
    assert ("programs   " in done.stdout) == (target != "cpu")
    assert lines[-1].startswith("  ")
    assert " ms  Config(" in lines[-1]


def test_a_real_search_on_the_cpu(module):
    # Two candidates; the budget is for machines with much else to do.
    done = run("tune", "mine:listed", *ARGS, "--budget", "60", "--report", "out", "--json")
    assert done.exit_code == 0, done.stderr
    record = json.loads(done.stdout)
    assert record["ms"] > 0
    assert record["num_tried"] == 2
    assert record["config"]["block_sizes"] in ([8, 8], [8, 16])
    assert {Path(path).suffix for path in record["report"]} >= {".csv", ".jsonl", ".html"}
