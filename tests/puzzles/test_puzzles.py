"""Every puzzle has a solution that is accepted; what is wrong is not, and the picture is right."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import tilesmith
import tilesmith.language as hl
from tests.puzzles import solutions
from tilesmith.cli.main import app
from tilesmith.puzzles import puzzle, puzzles
from tilesmith.puzzles.table import puzzle_notebook


@pytest.mark.parametrize("item", puzzles(), ids=lambda item: item.name)
def test_the_solution_is_accepted(item):
    outcome = item.check(getattr(solutions, item.name))
    assert outcome.is_solved, outcome.problem
    assert outcome.touches is not None
    assert len(outcome.touches.programs) > 1
    assert "written" in outcome.picture
    assert outcome._repr_html_().startswith("<div><svg ")


@pytest.mark.parametrize("item", puzzles(), ids=lambda item: item.name)
def test_the_beginning_is_no_solution(item, tmp_path):
    path = tmp_path / "start.py"
    path.write_text(item.file)
    done = CliRunner().invoke(app, ["puzzles", "check", str(path)])
    assert done.exit_code == 1, done.output
    assert "solved" not in done.stdout


@pytest.mark.parametrize("item", puzzles(), ids=lambda item: item.name)
def test_texts_are_complete_and_short(item):
    tree = ast.parse(item.file)
    assert any(isinstance(node, ast.FunctionDef) and node.name == item.name for node in tree.body)
    assert "..." in item.source
    assert max(map(len, item.source.splitlines())) <= 100
    assert item.hint
    assert str(item.number) in item.heading


@tilesmith.kernel
def add(x, y):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile.index + 1] = x[tile] + y[tile]
    return out


@tilesmith.kernel
def histogram(values, num_bins: hl.constexpr):
    out = torch.zeros([num_bins], dtype=torch.int32, device=values.device)
    for tile in hl.tile(values.size(0)):
        bins = values[tile]
        out[bins] = out[bins] + 1
    return out


@tilesmith.kernel
def add_ten(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] + 11
    return out


@tilesmith.kernel
def transpose(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile, :] = x[tile, :]
    return out


@pytest.mark.parametrize(
    ("kernel", "problem"),
    [
        (add, "out of bounds"),
        (histogram, "race on `out` at index 0"),
        (add_ten, r"element \[0\] is .* expected .*8 of 8 are wrong"),
        (transpose, r"the shape \[4, 6\], expected \[6, 4\]"),
        (lambda x: x + 10, "decorate the function"),
    ],
    ids=["bounds", "races", "values", "shape", "no kernel"],
)
def test_what_is_wrong_is_told(kernel, problem):
    name = "add_ten" if getattr(kernel, "__name__", "") == "<lambda>" else kernel.name
    outcome = puzzle(name).check(kernel)
    assert not outcome.is_solved
    assert re.search(problem, outcome.problem), outcome.problem


def test_the_picture_says_which_program_touches_which_element():
    outcome = puzzle("transpose").check(solutions.transpose)
    assert outcome.picture == "\n".join(
        [
            "x, read       out, written",
            "0 0 1 1 2 2   0 0 3 3",
            "0 0 1 1 2 2   0 0 3 3",
            "3 3 4 4 5 5   1 1 4 4",
            "3 3 4 4 5 5   1 1 4 4",
            "              2 2 5 5",
            "              2 2 5 5",
            "6 programs: 0 to 5;  + several  · none",
        ]
    )


@tilesmith.kernel
def row_sum(x):
    m = x.size(0)
    block = hl.register_block_size(m)
    partial = torch.zeros([tilesmith.cdiv(m, block), block], dtype=x.dtype)
    for tile in hl.tile(m, block_size=block):
        partial[tile.id, :] = x[tile, :].sum(1)
    return partial.view(-1)[:m]


def test_host_code_sees_the_blocks_that_are_drawn():
    # With other sizes than those of the config two programs wrote to one row of partial sums.
    outcome = puzzle("row_sum").check(row_sum)
    assert "race" not in outcome.problem


def test_shared_and_untouched_elements_are_marked():
    neighbours = puzzle("moving_sum").check(solutions.moving_sum).picture
    assert "0 + + + + + + 3" in neighbours


def test_the_notebook_holds_all_and_its_checks_run():
    cells = json.loads(puzzle_notebook())["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert len(code) == 1 + 2 * len(puzzles())
    assert all(cell["source"] for cell in cells)
    scope = {"puzzle": puzzle, "add_ten": solutions.add_ten}
    assert eval(code[2], scope).is_solved


def test_the_terminal_form(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, code: int = 0) -> str:
        done = CliRunner().invoke(app, ["puzzles", *arguments])
        assert done.exit_code == code, done.output
        return done.stdout + done.stderr

    assert len(run("list").splitlines()) == 12
    assert len(json.loads(run("list", "--json"))) == 12
    assert "def matmul(x, y):" in run("show", "7")
    assert "addmm" in run("hint", "matmul")
    assert "there is no puzzle 13" in run("show", "13", code=2)
    assert "puzzle_1.py" in run("start", "1")
    assert "exists" in run("start", "1", code=2)
    path = Path("puzzle_1.py")
    path.write_text(path.read_text().replace("out[tile] = ...", "out[tile] = x[tile] + 10"))
    assert "1. Add ten: solved" in run("check", "puzzle_1.py")
    assert json.loads(run("check", "puzzle_1.py", "--json"))["is_solved"]
    run("notebook")
    assert Path("puzzles.ipynb").stat().st_size > 5000
    Path("other.py").write_text("x = 1\n")
    assert "no kernel with the name of a puzzle" in run("check", "other.py", code=2)
    assert "no file nowhere.py" in run("check", "nowhere.py", code=2)
