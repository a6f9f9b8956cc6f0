"""Pages of reports in a real browser: they are laid out, fit, show pictures, sort and filter."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bench.made_up_page import made_up_page
from tests.bench.scoreboard.test_board import full_board
from tests.browser import BROWSER, Browser
from tests.tune.report.searches import tell
from tilesmith.bench.scoreboard.page import make_page
from tilesmith.tune.listener import History
from tilesmith.tune.report.page import write_report

WIDTHS = (1200, 800, 420)
PAPER, DARK_PAPER = (255, 255, 255), (0x14, 0x18, 0x1D)

pytestmark = pytest.mark.skipif(BROWSER is None, reason="there is no chromium")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    made = Browser()
    yield made
    made.close()


@pytest.fixture(scope="module", params=["benchmark", "search", "scoreboard"])
def page(request, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    if request.param == "benchmark":
        (folder / "page.html").write_text(made_up_page())
    elif request.param == "scoreboard":
        (folder / "page.html").write_text(make_page(full_board(), "Scoreboard"))
    else:
        history = History()
        tell(history)
        write_report(history, folder / "page")
    return folder / "page.html"


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_is_wider_than_the_window(browser: Browser, page: Path, width: int):
    browser.open(page, width)
    assert browser.run("document.documentElement.scrollWidth - innerWidth") <= 0
    sizes = browser.run("[...document.querySelectorAll('svg')].map(s => s.clientWidth)")
    # Pictures scroll rather than get too small to read.
    assert all(500 < size <= max(width, 640) for size in sizes)
    assert browser.errors == []


def test_text_is_there(browser: Browser, page: Path):
    browser.open(page)
    text = browser.run("document.body.innerText")
    expected = {
        "Benchmark": ("Benchmark on NVIDIA H200", "ours failed", "needs 150 GiB", "of 10"),
        "Tuning": ("softmax", "To pin this config", "The winner in full"),
        "Scoreboard": ("RuntimeError: <no> & | no",),
    }
    title = browser.run("document.title").split()[0]
    assert [words for words in expected[title] if words not in text] == []


def test_words_in_pictures_do_not_cover_each_other(browser: Browser, page: Path):
    """Of each picture: titles, legends and labels of the axes."""
    browser.open(page)
    overlaps = browser.run(
        "[...document.querySelectorAll('svg')].flatMap(svg => {"
        " const texts = [...svg.querySelectorAll('text')].map(t => [t, t.getBoundingClientRect()]);"
        " return texts.flatMap(([t, a], i) => texts.slice(i + 1).filter(([u, b]) =>"
        "   a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 4"
        "   && b.top < a.bottom - 4).map(([u]) => t.textContent + ' | ' + u.textContent)); })"
    )
    assert overlaps == []


def test_headings_sort_and_words_filter(browser: Browser, page: Path):
    browser.open(page)
    numbers = (
        "[...document.querySelectorAll('table.sortable')[0].tBodies[0].rows].filter(r => !r.hidden)"
        ".map(r => r.cells[COLUMN] ? parseFloat(r.cells[COLUMN].textContent) : NaN)"
        ".filter(n => !isNaN(n))"
    )
    column = browser.run(
        "[...document.querySelectorAll('table.sortable')[0].querySelectorAll('th')]"
        ".findIndex(h => h.classList.contains('number') && h.textContent.includes('ms'))"
    )
    head = f"table.sortable th:nth-child({column + 1})"
    numbers = numbers.replace("COLUMN", str(column))
    browser.click(head)
    rising = browser.run(numbers)
    assert len(set(rising)) > 1
    assert rising == sorted(rising)
    browser.run(f"document.querySelector({head!r}).focus()")
    browser.press("Enter")
    assert browser.run(numbers) == rising[::-1]
    if not browser.run("document.querySelectorAll('input.filter').length"):
        return  # of few rows
    browser.run(
        "(() => { const f = document.querySelector('input.filter');"
        "f.value = 'no such words'; f.dispatchEvent(new Event('input')); })()"
    )
    assert browser.run(numbers) == []


def test_a_row_unfolds(browser: Browser, page: Path):
    browser.open(page)
    if not browser.run("document.querySelectorAll('td details').length"):
        pytest.skip("no row has more to show")
    tall = "document.querySelector('td details').getBoundingClientRect().height"
    before = browser.run(tall)
    browser.click("td details summary")
    assert browser.run(tall) > before + 10


@pytest.mark.parametrize("is_dark", [False, True], ids=["light", "dark"])
def test_the_theme_is_the_readers(browser: Browser, page: Path, is_dark: bool):
    image = pytest.importorskip("PIL.Image")
    browser.open(page, 1200, 1600, is_dark=is_dark)
    browser.shoot(page.with_suffix(".png"))
    with image.open(page.with_suffix(".png")) as opened:
        shot = opened.convert("RGB")
    colours = {colour: count for count, colour in shot.getcolors(1 << 24)}
    mine, other = (DARK_PAPER, PAPER) if is_dark else (PAPER, DARK_PAPER)
    total = shot.width * shot.height
    assert 0.5 * total < colours[mine] < 0.98 * total
    assert colours.get(other, 0) < 0.05 * total
    assert len(colours) > 100
