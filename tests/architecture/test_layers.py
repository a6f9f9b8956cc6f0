"""The import contracts of pyproject.toml hold, and they notice what they are there to notice."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMMAND = (
    "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"
)


def run_import_linter(root: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", COMMAND],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root / "src"), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_all_contracts_are_kept() -> None:
    result = run_import_linter(ROOT)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(
    ("file", "line", "contract"),
    [
        ("ir/types.py", "import tilesmith.passes", "Each layer imports only"),
        ("utilities.py", "", "Each layer imports only"),
        ("ir/types.py", "import torch", "The IR and what stands below it"),
        ("passes/__init__.py", "import triton", "Triton is named in two files"),
        ("schedule/schedule.py", "import torch", "Torch is named only"),
        ("runtime/__init__.py", "import tilesmith.backends", "Launching an artifact"),
    ],
)
def test_a_forbidden_import_is_noticed(tmp_path: Path, file: str, line: str, contract: str) -> None:
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    with (tmp_path / "src" / "tilesmith" / file).open("a") as module:
        module.write(f"\n{line}\n")
    result = run_import_linter(tmp_path)
    assert result.returncode != 0
    broken = [text for text in result.stdout.splitlines() if " BROKEN" in text]
    assert any(contract in text for text in broken), result.stdout
