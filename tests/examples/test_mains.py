"""Every example file runs as a script and prints one line per kernel."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
SCRIPTS = sorted(path for path in EXAMPLES.glob("*.py") if path.stem != "demo")


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_example_checks_itself(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(script), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert lines
    assert all(line.startswith(script.stem) for line in lines)
