"""Pages of reports in a real browser: they are laid out, fit, show their pictures and text."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.bench.made_up_page import made_up_page
from tests.bench.scoreboard.test_board import full_board
from tests.tune.report.searches import tell
from tilesmith.bench.scoreboard.page import make_page
from tilesmith.tune.listener import History
from tilesmith.tune.report.page import write_report

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)
WIDTH, HEIGHT, NARROW = 1200, 1600, 500
PAPER, DARK_PAPER = (255, 255, 255), (0x14, 0x18, 0x1D)

pytestmark = pytest.mark.skipif(BROWSER is None, reason="there is no chromium")


def browse(page: Path, *flags: str) -> str:
    """What the browser prints, with a profile of its own."""
    profile = f"--user-data-dir={page.parent / 'profile'}"
    command = [str(BROWSER), *FLAGS, profile, *flags, page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout


def pixels_of(page: Path, *flags: str):
    """A screenshot, as rows of pixels."""
    image = pytest.importorskip("PIL.Image")
    shot = page.with_suffix(".shot.png")
    browse(page, f"--window-size={WIDTH},{HEIGHT}", f"--screenshot={shot}", *flags)
    with image.open(shot) as opened:
        assert opened.size == (WIDTH, HEIGHT)
        return opened.convert("RGB").copy()


@pytest.fixture(scope="module", params=["benchmark", "search"])
def page(request, tmp_path_factory) -> Path:
    pytest.importorskip("matplotlib")
    folder = tmp_path_factory.mktemp("page")
    if request.param == "benchmark":
        (folder / "page.html").write_text(made_up_page())
    else:
        history = History()
        tell(history)
        write_report(history, folder / "page")
    return folder / "page.html"


def measured(page: Path, width: int = WIDTH) -> str:
    """The page after a script that is no part of it has looked at its layout."""
    script = (
        "<script>window.onload = () => {"
        "const images = [...document.images].map(i => i.complete && i.naturalWidth > 600);"
        "const wide = document.documentElement.scrollWidth - window.innerWidth;"
        "document.title = `${images.length} ${images.every(x => x)} ${wide}`;"
        "};</script></body>"
    )
    copy = page.with_name("measured.html")
    copy.write_text(page.read_text().replace("</body>", script))
    return browse(copy, "--dump-dom", f"--window-size={width},{HEIGHT}")


def test_text_is_there_and_pictures_load_and_nothing_is_wider_than_the_window(page):
    dom = measured(page)
    expected = {
        True: ("<h1>Benchmark on NVIDIA H200</h1>", "ours failed", "needs 150 GiB", "of 10"),
        False: ("<h1>softmax</h1>", "To pin this config", "The winner in full"),
    }
    assert [text for text in expected["Benchmark" in dom] if text not in dom] == []
    title = dom.partition("<title>")[2].partition("</title>")[0]
    num_images, are_loaded, excess = title.split()
    assert int(num_images) >= 2
    assert are_loaded == "true"
    assert int(excess) <= 0


@pytest.mark.parametrize("width", [WIDTH, NARROW])
def test_the_scoreboard_fits_a_narrow_window_too(width: int, tmp_path: Path):
    page = tmp_path / "board.html"
    page.write_text(make_page(full_board(), "Scoreboard"))
    dom = measured(page, width)
    assert "RuntimeError: &lt;no&gt; &amp; | no" in dom
    excess = dom.partition("<title>")[2].partition("</title>")[0].split()[-1]
    assert int(excess) <= 0


def test_the_screenshot_is_not_blank(page):
    shot = pixels_of(page)
    colours = {colour: count for count, colour in shot.getcolors(1 << 24)}
    total = WIDTH * HEIGHT
    assert 0.5 * total < colours[PAPER] < 0.97 * total
    assert len(colours) > 200
    # Something is drawn in every quarter of the height.
    for top in range(0, HEIGHT, HEIGHT // 4):
        band = shot.crop((0, top, WIDTH, top + HEIGHT // 4))
        assert len(band.getcolors(1 << 24)) > 20
    # The margins stay empty.
    assert shot.crop((0, 0, 40, HEIGHT)).getcolors(1 << 24) == [(40 * HEIGHT, PAPER)]


def test_the_dark_theme_is_dark(page):
    shot = pixels_of(page, "--force-dark-mode", "--blink-settings=preferredColorScheme=0")
    colours = {colour: count for count, colour in shot.getcolors(1 << 24)}
    assert colours.get(DARK_PAPER, 0) > 0.5 * WIDTH * HEIGHT
    assert colours.get(PAPER, 0) < 0.05 * WIDTH * HEIGHT
