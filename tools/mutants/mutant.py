"""One mistake: text of the source, what takes its place, and the tests that notice.

A mutant is found by its text, which stands exactly once in ``src``: it survives moved files, and a
list that no longer fits the source is an error of ``tests/architecture/test_mutants.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "tilesmith"
TESTS = ROOT / "tests"


class MutantNotFoundError(Exception):
    """The text of a mutant is not there, or stands in several places."""


@dataclass(frozen=True)
class Mutant:
    """A wrong compiler.

    Attributes:
        name: what is wrong with it, as a reviewer would say it.
        area: the part of the compiler.
        before: text that occurs once in the source.
        after: what is written instead.
        tests: names of tests of the short run, of which one notices.
    """

    name: str
    area: str
    before: str
    after: str
    tests: tuple[str, ...]


def read_source(source: Path = SOURCE) -> dict[Path, str]:
    """The text of every file of the package, by its path in the package."""
    files = sorted([*source.rglob("*.py"), *source.rglob("*.c")])
    return {file.relative_to(source): file.read_text(encoding="utf-8") for file in files}


def find_file(mutant: Mutant, texts: dict[Path, str]) -> Path:
    """The only file that has the mutant's text, and has it once."""
    counts = {path: text.count(mutant.before) for path, text in texts.items()}
    found = {path: count for path, count in counts.items() if count}
    if sum(found.values()) != 1:
        places = ", ".join(f"{count} times in {path}" for path, count in found.items())
        raise MutantNotFoundError(f"{mutant.name}: {mutant.before!r} stands {places or 'nowhere'}")
    return next(iter(found))


@cache
def _test_files() -> dict[Path, str]:
    return {path: path.read_text(encoding="utf-8") for path in sorted(TESTS.rglob("test_*.py"))}


def locate_test(test: str) -> str:
    """A test as pytest takes it: the only function of that name, wherever it lies.

    A name that several files have comes with its file: ``test_file.py::test_name``.
    """
    file, _, name = test.rpartition("::")
    texts = {path: text for path, text in _test_files().items() if not file or path.name == file}
    found = [path for path, text in texts.items() if f"def {name}(" in text]
    if len(found) != 1:
        raise MutantNotFoundError(f"{test} is in {len(found)} files")
    return f"{found[0].relative_to(ROOT).as_posix()}::{name}"
