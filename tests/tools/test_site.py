"""Pages of the site: every link leads somewhere, every block of code runs, nothing is missing."""

from __future__ import annotations

import inspect
import json
import posixpath
import re
import shutil
import subprocess
import sys
from dataclasses import fields
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

import tilesmith.language as hl
from tests.errors.exception_table import NEVER_RAISED
from tests.wrong_uses.not_shown import NOT_SHOWN
from tilesmith import exc
from tilesmith.cli.main import COMMANDS
from tilesmith.schedule.config import KEYS
from tilesmith.settings import Settings, known_variables
from tools.site import build, cases, drawings, examples, gallery, kernel_life, pages, reference
from tools.site.notebooks import blocks_of, notebook_of, tutorials
from tools.site.pages import DOCS, ROOT

PAGES = [DOCS / "index.md", *sorted((DOCS / "start").glob("*.md")), *tutorials()]
SLOW = {"04_tuning"}
"""Pages that search, for seconds."""
LINK = re.compile(r"(?<!`)!?\[[^\]]+\]\(([^)#\s]+)(?:#[^)]*)?\)")
FENCE = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)


def code_cells(path: Path) -> list[str]:
    cells = json.loads(notebook_of(path.read_text(encoding="utf-8")))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=[pytest.mark.full] if path.stem in SLOW else [])
        for path in PAGES
        if code_cells(path)
    ],
    ids=lambda path: path.stem,
)
def test_a_page_runs_as_a_notebook(path: Path, tmp_path: Path):
    scope: dict[str, object] = {"__name__": "__main__"}
    for number, text in enumerate(code_cells(path)):
        # A notebook's cell has a file of its own, too.
        cell = tmp_path / f"cell_{number}.py"
        cell.write_text(text + "\n")
        exec(compile(cell.read_text(), str(cell), "exec"), scope)


def test_ten_steps_and_each_has_several_cells():
    assert [path.stem[:2] for path in tutorials()] == [f"{n:02}" for n in range(1, 11)]
    assert all(code_cells(path) for path in tutorials())
    assert all(blocks_of(path.read_text()) for path in tutorials())


@cache
def cheap_files() -> dict[str, str]:
    """All pages but those that take seconds to make, which nothing is taken for granted of."""
    files = pages.staged_pages()
    made = {path.relative_to(gallery.FOLDER).with_suffix(".md") for path in cases.example_files()}
    files |= {f"gallery/{path.as_posix()}": "" for path in made}
    listed = pages.rewritten((DOCS / "gallery.md").read_text(), "docs/gallery.md")
    files["gallery/index.md"] = listed
    files |= dict.fromkeys(build.GENERATED, "")
    files |= {f"explorer/{drawing.name}.html": "" for drawing in drawings.drawings()}
    for path in tutorials():
        place = f"tutorial/{path.stem}.md"
        files[place] = drawings.with_pictures(files[place])
    return files | {f"pictures/{path.name}": "" for path in DOCS.glob("*.svg")}


def broken_links(files: dict[str, str]) -> list[tuple[str, str]]:
    found = []
    for place, text in files.items():
        for target in LINK.findall(FENCE.sub("", text)):
            whole = posixpath.normpath(posixpath.join(posixpath.dirname(place), target))
            if "://" not in target and whole not in files:
                found.append((place, target))
    return found


def test_every_link_leads_to_a_page():
    assert len(cheap_files()) > 150
    assert broken_links(cheap_files()) == []
    assert broken_links({"a.md": "[b](b.md)"}) == [("a.md", "b.md")]


def test_what_the_menu_names_is_there():
    menu = (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2]
    named = re.findall(r"[\w/.]+\.md", menu)
    assert not [name for name in named if name not in cheap_files()]
    # Decisions and examples are listed on pages of their own.
    listed = {name for name in cheap_files() if not name.startswith(("gallery/", "how/decisions/"))}
    assert not [name for name in listed if name.endswith(".md") and name not in named]


def test_links_out_of_the_pages_become_text_or_lead_to_the_gallery():
    text = "[add](../examples/add.py), [test](../tests/conftest.py), [ir](ir.md#ops), `[x](y)`"
    assert pages.rewritten(text, "docs/gallery.md") == (
        "[add](add.md), test, [ir](../how/ir.md#ops), `[x](y)`"
    )


def test_every_function_of_the_language_has_signature_meaning_and_example():
    page = reference.language_page()
    names = [name for group in reference.GROUPS.values() for name in group]
    assert sorted(names) == sorted(hl.__all__)
    assert not [name for name in names if f"### hl.{name}\n" not in page]
    assert not [name for name in names if not reference.docstring_of(name)]
    assert not [name for name in names if not reference.signatures()[name]]
    assert not [name for name in names if not reference.example_of(name)]
    assert set(reference.NOTES) <= set(names)


def test_every_setting_variable_and_key_is_there():
    page = reference.settings_page()
    assert not [item.name for item in fields(Settings) if f"## `{item.name}`" not in page]
    assert not [name for name in known_variables() if f"`{name}`" not in page]
    assert "unknown setting 'static_shape'" in page
    keys = reference.keys_page()
    assert not [key.name for key in KEYS if f"| `{key.name}` |" not in keys]
    assert "block_sizs" in keys


def test_every_command_is_there():
    page = reference.commands_page()
    assert not [name for name in COMMANDS if f"## tilesmith {name}\n" not in page]
    assert "### tilesmith puzzles check" in page


def test_every_class_of_error_is_shown_or_explained():
    page = reference.errors_page()
    shown = set(re.findall(r"^## (\w+)$", page, re.MULTILINE))
    explained = set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))
    assert set(exc.__all__) <= shown | explained
    assert explained <= {*NEVER_RAISED, *NOT_SHOWN}
    assert not shown & explained
    assert len(shown) > 100


@pytest.mark.parametrize("name", examples.KERNELS)
def test_examples_of_the_reference_work(name, capfd):
    kernel = examples.KERNELS[name]
    masks = torch.tensor([6, 3, 5], dtype=torch.int32)
    words = torch.tensor([0, 0, 1])
    x = torch.tensor([1.0, 4.0, 9.0])
    if name == "atomic_min":
        found = kernel(x, words, torch.full([2], 99.0))
        assert found.tolist() == [1.0, 9.0]
    elif name in ("atomic_and", "atomic_xor"):
        found = kernel(masks, words, torch.full([2], 7, dtype=torch.int32))
        assert found.tolist() == ([2, 5] if name == "atomic_and" else [2, 2])
    elif name == "device_print":
        assert torch.equal(kernel(x), x)
        assert "tile begins at" in capfd.readouterr().out
    elif "stack" in name.lower():
        pointers = torch.tensor([x.data_ptr(), x.data_ptr()], dtype=torch.uint64)
        assert torch.equal(kernel(x, pointers), 2 * x)
    elif name == "breakpoint":
        assert "hl.breakpoint" in inspect.getsource(kernel.fn)
    else:
        assert "sqrt" in kernel.bind((x,), target="cuda:90").to_triton_code()


def test_the_life_of_a_kernel_has_real_output():
    page = kernel_life.life_page()
    for text in ("## 2. TRACE", "func @softmax", "## 7. EMIT", "facts of softmax", "@triton.jit"):
        assert text in page
    assert str(ROOT) not in page


def test_a_gallery_page_has_source_picture_code_and_times():
    page = "\n".join(gallery._page(cases.FOLDER / "rms_norm.py"))
    for text in ("def rms_norm", "<svg", "as native code", "as Triton for cuda:90", "2048x8192"):
        assert text in page


def test_every_kernel_of_a_page_has_its_picture():
    page = "\n".join(gallery._page(cases.FOLDER / "ports" / "moe_permute.py"))
    names = ("route", "sort_by_expert", "permute", "unpermute")
    assert [name for name in names if f'`{name}`\n\n<div class="tiles"><svg' not in page] == []
    called = "\n".join(gallery._page(cases.FOLDER / "linear" / "retention.py"))
    assert '`scalar_decay`\n\n<div class="tiles"><svg' in called


def test_every_example_has_a_measured_row():
    times = json.loads(gallery.CPU_TIMES.read_text())
    assert times["device"]
    assert times["date"]
    modules = [cases.module_of(path) for path in cases.example_files()]
    # One shows others, one holds what several share.
    without = ["examples.demo", "examples.distributed.ranks"]
    assert [module for module in modules if module not in times["rows"]] == without
    assert not [module for module in times["rows"] if module not in modules]


@pytest.mark.full
@pytest.mark.skipif(find_spec("material") is None, reason="make docs installs it")
def test_the_site_is_built_without_a_warning():
    done = subprocess.run(
        [sys.executable, "-m", "tools.site"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    pages_of_site = list((build.OUT / "html").rglob("*.html"))
    assert not [page for page in pages_of_site if 'src="http' in page.read_text()]
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no browser: search was not tried")
    address = f"file://{build.OUT / 'html' / 'index.html'}?q=jagged"
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=20000"]
    found = subprocess.run(
        [browser, *flags, "--dump-dom", address], capture_output=True, text=True, check=True
    )
    assert re.search(r"\d+ matching documents", found.stdout)
