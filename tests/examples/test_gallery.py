"""The gallery page has one line for each example, and no other."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "examples").rglob("*.py"))
LINE = re.compile(r"^\| \[([^\]]+)\]\(\.\./examples/([^)]+)\.py\)( \(bwd\))? \|", re.MULTILINE)


def lines() -> list[tuple[str, str, str]]:
    return LINE.findall((ROOT / "docs" / "gallery.md").read_text())


def test_every_example_has_one_line() -> None:
    listed = [path for _, path, _ in lines()]
    there = [path.relative_to(ROOT / "examples").with_suffix("").as_posix() for path in FILES]
    assert sorted(listed) == sorted(there)


def test_lines_are_called_like_their_file() -> None:
    assert [name for name, path, _ in lines() if path.split("/")[-1] != name.split("/")[-1]] == []


def test_what_has_a_gradient_is_marked() -> None:
    marked = {path for _, path, mark in lines() if mark}
    functions = {path for _, path, _ in lines() if "autograd.Function)" in text_of(path)}
    assert marked == functions


def text_of(path: str) -> str:
    return (ROOT / "examples" / f"{path}.py").read_text()


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_file_says_what_it_shows(file: Path) -> None:
    assert ast.get_docstring(ast.parse(file.read_text()))
