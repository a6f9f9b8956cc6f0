"""Writes all pages below build/site/pages, and builds the site beside them."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from tools.site import drawings, gallery, kernel_life, notebooks, pages, reference
from tools.site.pages import DOCS, ROOT

OUT = ROOT / "build" / "site"
STYLE, WORKER = "site.css", "file_worker.js"
FETCHED = "https://unpkg.com/iframe-worker/shim"
"""What the offline plugin would fetch from the network; ours is beside the page."""
GENERATED = {
    "reference/language_reference.md": reference.language_page,
    "reference/settings.md": reference.settings_page,
    "reference/config_keys.md": reference.keys_page,
    "reference/commands.md": reference.commands_page,
    "reference/error_examples.md": reference.errors_page,
    "how/kernel_life.md": kernel_life.life_page,
}


def all_files() -> dict[str, str]:
    """Every file of the site before it is built, by its place."""
    # Gallery first: it forks.
    files = {**gallery.gallery_pages(), **pages.staged_pages()}
    files |= {place: make() for place, make in GENERATED.items()}
    for picture in DOCS.glob("*.svg"):
        files[f"pictures/{picture.name}"] = picture.read_text(encoding="utf-8")
    files |= drawings.explorer_pages()
    files["explorer/life.html"] = kernel_life.explorer_page()
    for path in notebooks.tutorials():
        name, text = path.stem, path.read_text(encoding="utf-8")
        files[f"tutorial/{name}.ipynb"] = notebooks.notebook_of(text)
        link = f"[:material-notebook-outline: This page as a notebook]({name}.ipynb){{ download }}"
        place = f"tutorial/{name}.md"
        title, _, rest = files[place].partition("\n")
        files[place] = drawings.with_pictures(f"{title}\n\n{link}\n{rest}")
    for name in (STYLE, WORKER):
        files[f"assets/{name}"] = (Path(__file__).parent / name).read_text(encoding="utf-8")
    return files


def write(folder: Path) -> int:
    """Write the files; how many there are."""
    shutil.rmtree(folder, ignore_errors=True)
    files = all_files()
    for place, text in files.items():
        path = folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return len(files)


def make_offline(folder: Path) -> None:
    """Let pages take from beside them what they would fetch."""
    for page in folder.rglob("*.html"):
        up = "../" * (len(page.relative_to(folder).parts) - 1)
        text = page.read_text(encoding="utf-8")
        page.write_text(text.replace(FETCHED, f"{up}assets/{WORKER}"), encoding="utf-8")


def main() -> None:
    """``python -m tools.site``: write and build; ``--pages``: write only."""
    parser = argparse.ArgumentParser(prog="python -m tools.site", description=__doc__)
    parser.add_argument("--pages", action="store_true", help="write the pages and do not build")
    parser.add_argument("--mkdocs", default=sys.executable, help="a Python with mkdocs-material")
    options = parser.parse_args()
    begin = time.perf_counter()
    count = write(OUT / "pages")
    print(f"{count} files in {OUT / 'pages'} ({time.perf_counter() - begin:.0f} s)")
    if options.pages:
        return
    command = [options.mkdocs, "-m", "mkdocs", "build", "--strict", "-f", "mkdocs.yml"]
    # The successor that it recommends reads the same file (docs/decisions/0044).
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, check=False, stderr=subprocess.PIPE, text=True
    )
    problems = [line for line in done.stderr.splitlines() if not line.startswith("INFO")]
    print("\n".join(problems))
    make_offline(OUT / "html")
    print(f"{OUT / 'html' / 'index.html'} ({time.perf_counter() - begin:.0f} s)")
    raise SystemExit(done.returncode)
