"""A mutant is killed by a failing test only, and the copy is as before afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.mutants import trial
from tools.mutants.mutant import Mutant
from tools.mutants.trial import Copy

SOURCE = "def add(x, y):\n    return x + y\n"
TESTS = """
import time
from tilesmith.sums import add

def test_sums():
    assert add(2, 3) == 5

def test_zero():
    assert add(0, 0) == 0

def test_waiting():
    while add(1, 1) != 2:
        time.sleep(0.1)
"""


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Copy:
    """A copy of a package of one function with three tests."""
    root = tmp_path / "root"
    for name in trial.COPIED:
        (root / name).mkdir(parents=True)
    (root / "src" / "tilesmith").mkdir()
    (root / "src" / "tilesmith" / "__init__.py").touch()
    (root / "src" / "tilesmith" / "sums.py").write_text(SOURCE)
    (root / "tests" / "test_sums.py").write_text(TESTS)
    (root / "pytest.ini").write_text("[pytest]\npythonpath = src\n")
    monkeypatch.setattr(trial, "ROOT", root)
    place = tmp_path / "copy"
    place.mkdir()
    return Copy(place)


def wrong(before: str, after: str) -> Mutant:
    return Mutant("wrong", "ir", before, after, ())


def test_the_failing_test_is_named_and_the_copy_mended(copy: Copy):
    verdict = copy.try_mutant(wrong("x + y", "x - y"), ["tests"], 60)
    assert verdict.killer == "tests/test_sums.py::test_sums"
    assert not copy.run_tests(["tests"], 60).killer


def test_a_mutant_that_no_test_notices_survives(copy: Copy):
    verdict = copy.try_mutant(wrong("x + y", "x - y"), ["tests/test_sums.py::test_zero"], 60)
    assert (verdict.killer, verdict.problem) == ("", "")


def test_what_cannot_be_imported_or_does_not_end_is_not_killed(copy: Copy):
    broken = copy.try_mutant(wrong("return x + y", "return x +"), ["tests"], 60)
    assert not broken.is_killed
    assert "pytest gave 2" in broken.problem
    waiting = ["tests/test_sums.py::test_waiting"]
    assert "no verdict" in copy.try_mutant(wrong("x + y", "x * 3"), waiting, 5).problem
