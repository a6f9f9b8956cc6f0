"""The golden fixture and --full do what tests rely on, tried in a project of their own."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import SHARES, Share

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
TABLE = """
import pytest

@pytest.mark.parametrize("letter", list("abcdefghij"))
@pytest.mark.parametrize("number", range(20))
@pytest.mark.parametrize("name", ["only"])
def test_torch_scans(name, number, letter):
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
    assert outcome(project, "one\n") == "1 failed, 1 deselected"
    assert outcome(project, "one\n", "--update-golden") == "1 passed, 1 deselected"
    assert (project / "tests/golden/ir/text_a_b.txt").read_text() == "one\n"
    assert outcome(project, "one\n") == "1 passed, 1 deselected"
    assert outcome(project, "two\n") == "1 failed, 1 deselected"


def test_full_tests_run_only_when_asked(project: Path):
    assert outcome(project, "x", "--full", "--update-golden") == "2 passed"


@pytest.mark.parametrize("share", SHARES, ids=lambda share: f"{share.file}-{share.test}")
def test_tables_of_which_a_part_runs_are_there(share: Share):
    named = list((ROOT / "tests").rglob(share.file))
    assert len([file for file in named if f"def {share.test}" in file.read_text()]) == 1


def test_the_part_has_every_value_and_is_the_same_every_time(project: Path):
    (project / "tests/ir/test_torch_scans.py").write_text(TABLE)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--collect-only"]
    runs = [
        subprocess.run([*command, *options], cwd=project, stdout=subprocess.PIPE, check=True)
        for options in ((), (), ("--full",))
    ]
    first, again, full = ([line for line in run.stdout.split() if b"::" in line] for run in runs)
    assert first == again
    assert len(full) == 200
    assert 200 // 6 <= len(first) < 60
    for number in range(20):
        assert any(f"-{number}-".encode() in name for name in first)
    for letter in "abcdefghij":
        assert any(f"-{letter}]".encode() in name for name in first)
