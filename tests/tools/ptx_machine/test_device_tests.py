"""Which tests of a GPU the PTX machine runs: what is left out is there, and the rest has no GPU."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.device.left_out import LEFT_OUT, LeftOut

DEVICE_TESTS = Path(__file__).parents[2] / "device"


def names_in(file: str) -> list[str]:
    """Names of a file's tests."""
    tree = ast.parse((DEVICE_TESTS / file).read_text())
    return [x.name for x in tree.body if isinstance(x, ast.FunctionDef) and x.name[:5] == "test_"]


@pytest.mark.parametrize("item", LEFT_OUT, ids=lambda item: f"{item.file} {item.tests[0]}".strip())
def test_what_is_left_out_is_there(item: LeftOut) -> None:
    names = names_in(item.file)
    for beginning in item.tests:
        assert any(name.startswith(beginning.partition("[")[0]) for name in names)


def test_what_is_run_asks_for_no_gpu() -> None:
    whole = {item.file for item in LEFT_OUT if item.tests == ("",)}
    parts = {item.file for item in LEFT_OUT} - whole
    for path in DEVICE_TESTS.glob("test_*.py"):
        if path.name not in whole | parts:
            text = path.read_text()
            assert '"cuda"' not in text, path.name
            assert ".cuda(" not in text, path.name
            assert "torch.cuda" not in text, path.name
