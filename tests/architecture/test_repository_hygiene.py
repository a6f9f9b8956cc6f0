"""Nothing in the repository names the machine it was written on, or is left half done."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("src", "tests", "tools", "docs", "examples", "benchmarks", ".ci")
TEXT_SUFFIXES = {"", ".py", ".md", ".txt", ".toml", ".yaml", ".json", ".cfg", ".tile"}
SKIPPED = {"__pycache__", "node_modules", ".git", "setup.cfg"}
"""In a linked worktree ``.git`` is a file with the path of the repository, and no part of it.
``setup.cfg`` is what building a source distribution adds to it.
"""

MOST_COLUMNS = 120
GENERATED = {"ops.md"}

# Written in pieces, so that this file does not match itself.
MACHINE_PATH = re.compile(
    r"(?<![\w.\-/])/(?:" + "|".join(["work", "root", "home", "Users"]) + r")/"
)
PLACEHOLDERS = re.compile(
    r"\b(?:" + "|".join(["TO" + "DO", "FIX" + "ME", "X" * 3, "Place" + "holder docstring"]) + r")\b"
    "|lorem " + "ipsum"
)


def text_files() -> Iterator[Path]:
    yield from (path for path in sorted(ROOT.iterdir()) if path.is_file() and is_text(path))
    for folder in FOLDERS:
        yield from (path for path in sorted((ROOT / folder).rglob("*")) if is_text(path))


def is_text(path: Path) -> bool:
    parts = path.relative_to(ROOT).parts
    skipped = any(part in SKIPPED or part.endswith(".egg-info") for part in parts)
    return path.is_file() and path.suffix in TEXT_SUFFIXES and not skipped


def lines_matching(pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in text_files()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if pattern.search(line)
    ]


@pytest.mark.parametrize(
    "pattern", [MACHINE_PATH, PLACEHOLDERS], ids=["machine paths", "placeholders"]
)
def test_no_file_contains(pattern: re.Pattern[str]):
    found = lines_matching(pattern)
    assert not found, "\n" + "\n".join(found)


def test_text_files_end_with_one_newline():
    texts = [(path, path.read_text(encoding="utf-8")) for path in text_files()]
    assert not [path for path, text in texts if text and text != text.rstrip("\n") + "\n"]


def test_every_module_has_a_docstring():
    sources = sorted((ROOT / "src").rglob("*.py"))
    assert not [path for path in sources if not path.read_text().startswith('"""')]


def test_the_patterns_match_what_they_should():
    assert MACHINE_PATH.search("see /" + "home/someone/file")
    assert not MACHINE_PATH.search("https://example.org/" + "home/page")
    assert PLACEHOLDERS.search("# TO" + "DO later")
    assert not PLACEHOLDERS.search("a placeholder of a template")


def long_lines(path: Path) -> Iterator[str]:
    """Lines of prose above the limit: not those of tables and code, nor single words."""
    is_code = False
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        is_mark = line.lstrip().startswith("```")
        is_code ^= is_mark
        is_prose = not (is_code or is_mark or line.lstrip().startswith("|"))
        if is_prose and len(line) > MOST_COLUMNS and " " in line.strip():
            yield f"{path.relative_to(ROOT)}:{number}: {len(line)} columns"


def test_lines_of_documents_are_short():
    pages = [path for path in text_files() if path.suffix == ".md" and path.name not in GENERATED]
    assert len(pages) > 100
    found = [line for path in pages for line in long_lines(path)]
    assert not found, "\n" + "\n".join(found)
