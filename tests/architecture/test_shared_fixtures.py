"""The golden fixture and --full do what tests rely on, tried in a project of their own."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SAMPLE = """
import pytest

@pytest.mark.parametrize("name", ["a/b"])
def test_text(golden, name):
    golden({text!r})

@pytest.mark.full
def test_long():
    pass
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "tests" / "ir").mkdir(parents=True)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n  full: x\n  device: x\n")
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path / "tests")
    return tmp_path


def outcome(project: Path, text: str, *options: str) -> str:
    (project / "tests" / "ir" / "test_sample.py").write_text(SAMPLE.format(text=text))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests", *options]
    result = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    return result.stdout.splitlines()[-1].partition(" in ")[0]


def test_golden_text_is_recorded_on_request_and_compared_otherwise(project: Path):
    assert outcome(project, "one\n") == "1 failed, 1 skipped"
    assert outcome(project, "one\n", "--update-golden") == "1 passed, 1 skipped"
    assert (project / "tests/golden/ir/text_a_b.txt").read_text() == "one\n"
    assert outcome(project, "one\n") == "1 passed, 1 skipped"
    assert outcome(project, "two\n") == "1 failed, 1 skipped"


def test_full_tests_run_only_when_asked(project: Path):
    assert outcome(project, "x", "--full", "--update-golden") == "2 passed"
