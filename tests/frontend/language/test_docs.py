"""The example of docs/indexing.md runs."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "indexing.md"


def test_the_example_runs(tmp_path: Path) -> None:
    (text,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    # Kernels are read from a file.
    file = tmp_path / "example.py"
    file.write_text(text)
    assert "label_scores" in runpy.run_path(str(file))
