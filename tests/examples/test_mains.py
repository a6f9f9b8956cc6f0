"""Every example runs as a script and prints what it found, line by line after its name."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Some files hold what several examples share.
SCRIPTS = sorted(
    path
    for path in (ROOT / "examples").rglob("*.py")
    if path.stem != "demo" and path.parent.stem != "models" and "def main(" in path.read_text()
)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_example_checks_itself(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(script), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert lines
    assert all(line.startswith(script.stem) for line in lines)
