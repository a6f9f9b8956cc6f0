"""The code in docs/facts.md prints what the page says it prints."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from tests.warm_python import warm_python

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "facts.md"
FENCE = re.compile(r"```(python|text)\n(.*?)```", re.DOTALL)
MARK = "-- end of a block --"


def test_the_page_shows_what_its_code_prints(tmp_path: Path):
    blocks = FENCE.findall(PAGE.read_text())
    code = [text for language, text in blocks if language == "python"]
    shown = [text for language, text in blocks if language == "text"]
    assert len(code) == len(shown) >= 2
    script = tmp_path / "kernels.py"
    script.write_text(f"print({MARK!r})\n".join(code))
    result = subprocess.run(
        [*warm_python(), script],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.split(f"{MARK}\n") == shown
