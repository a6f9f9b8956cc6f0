"""Folders of runs that were killed go when the next run begins; those of running ones stay."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tilesmith.bench.run import PREFIX, scratch_folder

HOLDER = """
import os, sys
from tilesmith.bench.run import scratch_folder
with scratch_folder() as folder:
    (folder / "reference.pt").write_text("large")
    (folder / "cache").mkdir()
    print(folder, flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def start_run(place: Path) -> tuple[subprocess.Popen[str], Path]:
    paths = os.pathsep.join(filter(None, sys.path))
    run = subprocess.Popen(
        [sys.executable, "-c", HOLDER],
        env={**os.environ, "PYTHONPATH": paths, "TMPDIR": str(place)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert run.stdout is not None
    return run, Path(run.stdout.readline().strip())


def interrupted_run() -> None:
    with scratch_folder() as folder:
        (folder / "file").write_text("")
        raise KeyboardInterrupt


def test_nothing_is_left_of_a_run_that_ends(place: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        interrupted_run()
    assert list(place.iterdir()) == []


def test_the_folder_of_a_killed_run_goes_when_the_next_begins_and_not_before(place: Path) -> None:
    run, left = start_run(place)
    try:
        with scratch_folder() as mine:
            assert (left / "reference.pt").exists()
            assert mine != left
    finally:
        run.kill()
        run.communicate()
    assert left.exists()
    with scratch_folder() as mine:
        assert [path.name for path in place.iterdir() if path.is_dir()] == [mine.name]
    assert list(place.iterdir()) == []


def test_nothing_else_is_touched(place: Path) -> None:
    kept, important = place / f"{PREFIX}results", place / "important"
    kept.mkdir()
    important.write_text("stays")
    (place / f"{PREFIX}odd.lock").symlink_to(important)
    with scratch_folder():
        pass
    assert kept.exists()
    assert important.read_text() == "stays"
