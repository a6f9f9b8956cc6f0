"""The example of docs/accuracy.md runs, and the page names every option of the command."""

from __future__ import annotations

import re
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

from tilesmith.cli.accuracy import AccuracyFlags
from tilesmith.cli.flags import KernelFlags

PAGE = Path(__file__).parents[3] / "docs" / "accuracy.md"


def test_the_example_of_the_page_runs(tmp_path, monkeypatch, capsys):
    (block,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    file = tmp_path / "page.py"
    file.write_text(block)
    monkeypatch.setenv("TILESMITH_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setitem(sys.modules, "page", type(sys)("page"))
    scope: dict[str, Any] = {"__name__": "page", "__file__": str(file)}
    exec(compile(block, str(file), "exec"), scope)
    assert "eager over repeats: all 3 runs agree" in capsys.readouterr().out
    assert scope["worst"].implementation in ("kernel", "eager", "as written")


def test_every_option_is_on_the_page():
    own = {field.name for field in fields(AccuracyFlags)} - {f.name for f in fields(KernelFlags)}
    assert not [name for name in own if f"--{name}" not in PAGE.read_text()]
