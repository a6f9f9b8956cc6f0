"""Generated documentation is what the generator would write now; links and paths in prose exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tilesmith.ir.ops.catalog import OPS_BY_NAME
from tilesmith.ir.ops.elementwise import SCALAR_FUNCTIONS
from tools import generate_loop_ir_docs
from tools.generate_ir_docs import OUTPUT, render

ROOT = Path(__file__).parents[2]
PROSE = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\[[^\]]+\]\(([^)#\s]+)(?:#[^)]*)?\)")


def test_ir_reference_is_up_to_date():
    assert OUTPUT.read_text(encoding="utf-8") == render(), "run `make docs`"


def test_loop_ir_reference_is_up_to_date():
    written = generate_loop_ir_docs.OUTPUT.read_text(encoding="utf-8")
    assert written == generate_loop_ir_docs.render(), "run `make docs`"


def test_ir_reference_names_every_op_and_scalar_function():
    text = render()
    assert not [name for name in OPS_BY_NAME if f"### `{name}`" not in text]
    assert not [name for name in SCALAR_FUNCTIONS if f"| `{name}` |" not in text]


@pytest.mark.parametrize("file", PROSE, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_relative_links_lead_somewhere(file: Path):
    targets = [link for link in LINK.findall(file.read_text()) if "://" not in link]
    assert not [link for link in targets if not (file.parent / link).exists()]
