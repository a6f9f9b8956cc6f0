"""The explorer in a real browser: pointing, clicking, keys, sliders, themes, narrow screens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import tilesmith
from examples.attention import attention
from examples.softmax import softmax
from tests.browser import BROWSER, Browser
from tests.explore.test_explorer import shares

pytestmark = pytest.mark.skipif(BROWSER is None, reason="there is no chromium")
PAPER, DARK_PAPER = (255, 255, 255), (0x14, 0x18, 0x1D)
LIT = "[...document.querySelectorAll('.column.KIND .lit code')].map(c => c.textContent)"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    made = Browser()
    yield made
    made.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("explore")
    shapes = tuple(torch.randn(2, 8, 1024, 128, dtype=torch.bfloat16) for _ in range(3))
    cpu = softmax.bind((torch.randn(256, 512),))
    made = {
        "attention": attention.bind(shapes, target="cuda:90").explore(),
        "launches": shares.bind((torch.randn(16, 24),)).explore(),
        "two": cpu.explore(beside=tilesmith.Config(block_sizes=[8])),
    }
    return {name: page.save(folder / f"{name}.html") for name, page in made.items()}


@pytest.fixture
def wide(browser: Browser, pages: dict[str, Path]) -> Browser:
    """The page of attention with all columns."""
    browser.open(pages["attention"], 1600, 1000)
    return browser


def lit(browser: Browser, kind: str) -> list[str]:
    return browser.run(LIT.replace("KIND", kind))


def line_with(browser: Browser, kind: str, words: str) -> str:
    """A selector of the first line of a column that has some words."""
    place = browser.run(
        f"[...document.querySelectorAll('.column.{kind} .line')]"
        f".findIndex(l => l.textContent.includes({words!r}))"
    )
    assert place >= 0, words
    return f".column.{kind} .line:nth-child({place + 1})"


def test_a_page_of_attention_is_small_and_opens_without_an_error(browser, pages):
    assert pages["attention"].stat().st_size < 3_000_000
    browser.open(pages["attention"], 1600)
    assert browser.errors == []


@pytest.mark.full  # a machine that has other work to do may take longer
def test_a_page_of_attention_opens_quickly(browser, pages):
    assert min(browser.open(pages["attention"], 1600) for _ in range(5)) < 2.0


def test_launches_are_shown_one_at_a_time(browser, pages):
    browser.open(pages["launches"], 1600)
    names = "[...document.querySelectorAll('figcaption b')].map(b => b.textContent)"
    assert browser.run(names) == ["x", "sums"]
    browser.click(".launches button:nth-child(2)")
    assert "out" in browser.run(names)
    browser.point(line_with(browser, "source", "out[a, b] = "))
    assert any("store" in line for line in lit(browser, "ir"))
    assert browser.run("document.querySelectorAll('main').length") == 1
    assert browser.errors == []


def test_pointing_at_a_line_lights_up_what_comes_from_it(wide):
    wide.point(line_with(wide, "source", "torch.amax(scores"))
    assert any("reduce" in line for line in lit(wide, "ir"))
    assert any("reduce max" in line for line in lit(wide, "schedule"))
    assert any("gl.reduce(" in line for line in lit(wide, "emitted"))
    assert any("max" in line for line in lit(wide, "machine"))
    assert not any("wgmma" in line for line in lit(wide, "machine"))
    wide.point(line_with(wide, "source", "torch.bmm("))
    assert any("wgmma" in line or "mma" in line for line in lit(wide, "machine"))


def test_pointing_at_machine_code_finds_the_line_of_the_user(wide):
    wide.point(line_with(wide, "machine", "ex2.approx"))
    assert any("exp2" in line for line in lit(wide, "source"))
    hit = wide.run("[...document.querySelectorAll('.column.emitted .hit')].length")
    assert hit == 1


def test_a_click_keeps_a_line_and_brings_the_others_into_view(wide):
    wide.click(line_with(wide, "source", "torch.amax(scores"))
    kept = lit(wide, "emitted")
    wide.point(line_with(wide, "source", "torch.bmm("))
    assert lit(wide, "emitted") == kept
    is_seen = (
        "(() => { const c = document.querySelector('.column.machine .lines');"
        "const l = c.querySelector('.lit').getBoundingClientRect(), b = c.getBoundingClientRect();"
        "return l.top >= b.top && l.bottom <= b.bottom; })()"
    )
    assert wide.run(is_seen)
    wide.press("Escape")
    wide.click(line_with(wide, "source", "torch.amax(scores"))
    wide.click(line_with(wide, "source", "torch.amax(scores"))
    assert not wide.run("document.body.classList.contains('pinned')")


def test_keys_move_from_line_to_line_and_column_to_column(wide):
    wide.run("document.querySelector('.column.source .lines').focus()")
    wide.press("Home", "ArrowDown", "ArrowDown")
    at = "document.querySelector('.line.at').dataset.i"
    assert wide.run(at) == "2"
    wide.press("End", "Enter")
    assert wide.run("document.body.classList.contains('pinned')")
    wide.press("Escape")
    assert not wide.run("document.body.classList.contains('pinned')")
    wide.press("ArrowRight")
    assert wide.run("document.activeElement.parentNode.dataset.kind") == "ir"
    wide.press("ArrowDown")
    assert wide.run("document.querySelector('.line.at').closest('.column').dataset.kind") == "ir"


def test_the_slider_goes_through_the_stages(wide):
    name = "document.querySelector('.pass b').textContent"
    text = "document.querySelector('.column.ir .lines').innerText"
    last = wide.run(text)
    wide.run("document.querySelector('.column.ir input').focus()")
    wide.press("Home")
    assert wide.run(name).startswith("TRACE")
    assert wide.run(text) != last
    wide.press("End")
    assert wide.run(text) == last


def test_sass_can_be_chosen(wide):
    wide.run(
        "(() => { const s = document.querySelector('.column.machine select'); s.value = 1;"
        "s.dispatchEvent(new Event('change')); })()"
    )
    wide.point(line_with(wide, "source", "torch.bmm("))
    assert any("GMMA" in line for line in lit(wide, "machine"))


def test_sliders_go_through_programs_and_steps(wide):
    told = "document.querySelector('#tiles .told').textContent"
    assert "load q" in wide.run(told)
    wide.run("document.querySelectorAll('#tiles input')[1].focus()")
    wide.press("ArrowRight", "ArrowRight")
    assert "loop at 128: load k, load v" in wide.run(told)
    wide.run("document.querySelectorAll('#tiles input')[0].focus()")
    wide.press("ArrowRight")
    assert "tile_m=128" in wide.run(told)
    wide.click("#tiles .strip")
    assert "step" in wide.run("document.querySelector('#tiles .controls').textContent")
    painted = wide.run(
        "[...document.querySelectorAll('#tiles canvas')].map(c => new Set(c.getContext('2d')"
        ".getImageData(0, 0, c.width, c.height).data).size)"
    )
    assert len(painted) == 4
    assert all(count > 4 for count in painted)


def test_two_configs_stand_side_by_side(browser, pages):
    browser.open(pages["two"], 1600)
    heads = browser.run("[...document.querySelectorAll('.head > b')].map(b => b.textContent)")
    assert heads == [
        *("your source", "IR · A", "IR · B", "loop nest · A", "loop nest · B", "loops · A"),
        *("loops · B", "assembly · A", "assembly · B"),
    ]
    browser.point(line_with(browser, "source", "functional.softmax"))
    shown = browser.run(
        "[...document.querySelectorAll('.column.emitted')]"
        ".map(c => c.querySelectorAll('.lit').length)"
    )
    assert all(count > 3 for count in shown)
    assert browser.run("document.querySelectorAll('.point').length") == 2


def test_neighbours_can_be_filtered(wide):
    rows = (
        "[...document.querySelectorAll('#alternatives tbody')[0].rows]"
        ".filter(r => !r.hidden).length"
    )
    before = wide.run(rows)
    wide.run("document.querySelector('#alternatives input').focus()")
    wide.press(*"block_sizes")
    assert 0 < wide.run(rows) < before


@pytest.mark.parametrize("name", ["attention", "two"])
@pytest.mark.parametrize("width", [1400, 800, 420])
def test_nothing_is_wider_than_the_window(browser, pages, name: str, width: int):
    browser.open(pages[name], width)
    assert browser.run("document.documentElement.scrollWidth - innerWidth") <= 0
    assert browser.errors == []


def test_a_narrow_screen_has_one_column_at_a_time(browser, pages):
    browser.open(pages["attention"], 420, 900)
    shown = (
        "[...document.querySelectorAll('.column')].filter(c => !c.hidden).map(c => c.dataset.kind)"
    )
    assert browser.run(shown) == ["source"]
    browser.click(line_with(browser, "source", "torch.amax(scores"))
    badges = browser.run("[...document.querySelectorAll('.chips sup')].map(s => s.textContent)")
    assert all(int(text) > 0 for text in badges[1:])
    browser.click(".chips button[data-kind=emitted]")
    assert browser.run(shown) == ["emitted"]
    assert any("gl.reduce(" in line for line in lit(browser, "emitted"))


@pytest.mark.parametrize("is_dark", [False, True], ids=["light", "dark"])
def test_the_theme_is_the_readers(browser, pages, tmp_path: Path, is_dark: bool):
    image = pytest.importorskip("PIL.Image")
    browser.open(pages["attention"], 1400, 900, is_dark=is_dark)
    browser.shoot(tmp_path / "shot.png")
    with image.open(tmp_path / "shot.png") as opened:
        shot = opened.convert("RGB")
    colours = {colour: count for count, colour in shot.getcolors(1 << 24)}
    mine, other = (DARK_PAPER, PAPER) if is_dark else (PAPER, DARK_PAPER)
    assert colours[mine] > 0.4 * shot.width * shot.height
    assert colours.get(other, 0) < 0.05 * shot.width * shot.height
