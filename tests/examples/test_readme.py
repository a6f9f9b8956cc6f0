"""The Python in the README runs, as one script, on a machine without a GPU."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]


@pytest.fixture
def script(tmp_path: Path) -> Path:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert len(blocks) >= 2
    file = tmp_path / "readme.py"
    file.write_text("\n".join(blocks))
    return file


def test_readme_code_runs(script: Path, monkeypatch, capsys):
    # Inductor's compiler of C++ takes 15 seconds; what is ours ends with the graph.
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    runpy.run_path(str(script))
    assert "@triton.jit" in capsys.readouterr().out


@pytest.mark.full
def test_readme_code_runs_in_a_process_of_its_own(script: Path):
    result = subprocess.run(
        [sys.executable, script],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert "@triton.jit" in result.stdout
