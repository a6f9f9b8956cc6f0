"""The examples of docs/tuning.md run, in order, in one program."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import torch

PAGE = Path(__file__).parents[2] / "docs" / "tuning.md"
TUNER = Path(__file__).parents[2] / "src" / "tilesmith" / "tune"


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TILESMITH_CACHE_DIR", str(tmp_path / "cache"))


def test_the_examples_of_the_page_run(tmp_path, monkeypatch):
    text = PAGE.read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.S)
    assert len(blocks) == 4
    file = tmp_path / "page.py"
    file.write_text("\n".join(blocks))
    monkeypatch.setenv("TILESMITH_AUTOTUNE_PROGRESS_BAR", "0")
    scope: dict[str, object] = {"__name__": "page", "__file__": str(file)}
    monkeypatch.setitem(sys.modules, "page", type(sys)("page"))
    exec(compile(file.read_text(), str(file), "exec"), scope)
    x = scope["x"]
    assert isinstance(x, torch.Tensor)
    assert torch.equal(scope["add"](x, scope["y"]), x + scope["y"])  # type: ignore[operator]
    assert scope["config"]["rows"] in (1, 2, 4, 8, 16, 32, 64)  # type: ignore[index]


def test_every_setting_of_the_tuner_is_on_the_page():
    text = PAGE.read_text()
    shortened = ("autotune_baseline_atol", "autotune_baseline_rtol")
    code = "".join(path.read_text() for path in TUNER.rglob("*.py"))
    read = set(re.findall(r"\bsettings\.(autotune\w*|deterministic)\b", code))
    assert len(read) > 20
    missing = [name for name in read if name not in text and name not in shortened]
    assert not [name for name in missing if not name.endswith("_accuracy_check_fn")]
