"""Generated documentation is what the generator would write now; links and paths in prose exist."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.warm_python import warm_python
from tilesmith.ir.ops.catalog import OPS_BY_NAME
from tilesmith.ir.ops.elementwise import SCALAR_FUNCTIONS
from tools import draw_house, draw_indexing, generate_loop_ir_docs
from tools.generate_ir_docs import OUTPUT, render
from tools.site import drawings
from tools.site.pages import GENERATED

ROOT = Path(__file__).parents[2]
PROSE = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\[[^\]]+\]\(([^)#\s]+)(?:#[^)]*)?\)")


def test_ir_reference_is_up_to_date():
    assert OUTPUT.read_text(encoding="utf-8") == render(), "run `make generated`"


def test_loop_ir_reference_is_up_to_date():
    written = generate_loop_ir_docs.OUTPUT.read_text(encoding="utf-8")
    assert written == generate_loop_ir_docs.render(), "run `make generated`"


def test_the_pictures_of_subscripts_are_up_to_date():
    written = draw_indexing.OUTPUT.read_text(encoding="utf-8")
    assert written == draw_indexing.render(), "run `make generated`"


def test_the_pictures_of_the_tutorial_are_up_to_date():
    made = drawings.pictures()
    assert {path.name: path.read_text() for path in drawings.FOLDER.iterdir()} == made, (
        "run `make generated`"
    )


def test_ir_reference_names_every_op_and_scalar_function():
    text = render()
    assert not [name for name in OPS_BY_NAME if f"### `{name}`" not in text]
    assert not [name for name in SCALAR_FUNCTIONS if f"| `{name}` |" not in text]


@pytest.mark.parametrize("file", PROSE, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_relative_links_lead_somewhere(file: Path):
    targets = [link for link in LINK.findall(file.read_text()) if "://" not in link]
    # Pages that only the site has are looked for in tests/tools/test_site.py.
    missing = [link for link in targets if not (file.parent / link).exists()]
    assert not [link for link in missing if not is_generated(file, link)]


def is_generated(file: Path, link: str) -> bool:
    path = (file.parent / link).resolve().relative_to(ROOT.resolve()).as_posix()
    return path in GENERATED


def test_the_drawing_of_the_house_is_up_to_date(tmp_path: Path):
    # A process of its own: the drawing numbers rooms by a first call, with nothing cached.
    plain = {k: v for k, v in os.environ.items() if not k.startswith("TILESMITH_")}
    found = subprocess.run(
        [*warm_python(), "-c", "from tools.draw_house import render; print(render(), end='')"],
        cwd=ROOT,
        env={**plain, "PYTHONPATH": f"src{os.pathsep}.", "TILESMITH_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert draw_house.OUTPUT.read_text(encoding="utf-8") == found.stdout, "run `make generated`"


ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text()


def test_places_that_the_architecture_names_exist():
    package = ROOT / "src" / "tilesmith"
    files = {path.name for path in package.rglob("*.py")}
    named = re.findall(r"`(?:tilesmith/)?([\w/.]+(?:/|\.py))`", ARCHITECTURE)
    assert len(named) > 40
    missing = [
        place
        for place in named
        if not (package / place).exists() and not (ROOT / place).exists() and place not in files
    ]
    assert not missing


def test_every_room_has_its_section_and_every_section_its_room():
    rooms = {name for row in draw_house.layers() for name in row}
    headings = re.findall(r"^### (.*)$", ARCHITECTURE, re.MULTILINE)
    described = {name for heading in headings for name in re.findall(r"`([\w/]+)`", heading)}
    assert described <= rooms
    facades = {"__main__", "_testing", "autotuner", "experimental", "language", "exc"}
    assert rooms - described == facades
