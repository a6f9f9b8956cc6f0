"""The page: well-formed, escaped, self-contained, with everything that was promised."""

from __future__ import annotations

import re
from html import escape

import pytest

from tests.page_reader import Reader, assert_nothing_is_fetched
from tests.tune.report.searches import DEFAULT, failed, make_result, make_start, tell, timed
from tilesmith.diagnostics.catalogue import InternalError
from tilesmith.schedule.config import Config
from tilesmith.settings import Settings
from tilesmith.store.outcome import Verdict
from tilesmith.tune.listener import History, Progress
from tilesmith.tune.options import TuneOptions
from tilesmith.tune.report.listeners import TableListener, choose_listeners
from tilesmith.tune.report.log import LogListener
from tilesmith.tune.report.page import ReportListener, make_page, write_report
from tilesmith.tune.result import StopReason

EVIL = '<script>alert("x & y")</script>'


@pytest.fixture(scope="module")
def page() -> str:
    history = History()
    tell(history)
    return make_page(history)


def small_page(**result) -> str:
    history = History()
    history.on_start(make_start())
    history.on_outcome(timed(DEFAULT, 0.0735), Progress(1.0, 15.0, 1, 0))
    history.on_end(make_result(**result))
    return make_page(history)


def test_the_page_is_well_formed_and_has_all_sections(page):
    reader = Reader(page)
    assert reader.headings == [
        "The search",
        "Best configs",
        "Side by side",
        "The winner in full",
        "Rejected",
        "Prediction",
        "How it was done",
    ]
    assert reader.texts["title"][0] == "Tuning softmax"
    assert reader.texts["h1"] == ["softmax"]


def test_nothing_is_fetched_from_elsewhere(page):
    assert_nothing_is_fetched(page)


def test_the_result_is_at_the_top(page):
    reader = Reader(page)
    assert reader.texts["b"] == ["0.0581 ms", "1.27×", "96%", "120", "15.2 s"]
    assert reader.texts["span"][1] == "the speed of the default (0.0735 ms)"
    assert reader.texts["pre"][0] == make_result().paste_line


def test_the_best_twenty_are_listed_in_order(page):
    table = page.partition("Best configs")[2].partition("</table>")[0]
    pattern = r'<tr[^>]*><td class="number">(\d+)</td><td class="number">([\d.]+)</td>'
    rows = re.findall(pattern, table)
    times = [float(time) for _, time in rows]
    assert [int(place) for place, _ in rows] == list(range(1, 21))
    assert times == sorted(times)
    assert "32" in table  # KiB of shared memory
    assert "84 slower configs" in page


def test_causes_of_rejection_have_counts_and_an_example(page):
    table = page.partition("<h2>Rejected</h2>")[2].partition("</table>")[0]
    counts = [int(n) for n in re.findall(r'<td class="number">(\d+)</td>', table)]
    assert sum(counts) == 16
    assert counts == sorted(counts, reverse=True)
    assert "needs &lt;much&gt; &amp; &quot;more&quot; of" in table
    assert "<much>" not in page


def test_keys_that_differ_from_the_default_are_marked(page):
    table = page.partition("The winner in full")[2].partition("</table>")[0]
    marked = re.findall(r'<tr class="changed"><td><code>(\w+)</code>', table)
    assert marked == ["block_sizes", "num_warps", "range_flattens"]
    assert "3 keys differ from the default" in page


def test_pictures_are_drawn_once_for_both_themes(page):
    tags = {tag for tag, _, _ in Reader(page).attributes}
    assert page.count("<svg") == 2
    assert not tags & {"img", "picture", "source"}
    assert "prefers-color-scheme: dark" in page
    # Bitmaps in two themes took some 200,000 characters.
    assert len(page) < 100_000


def test_the_card_and_the_tables_have_one_number_for_the_winner(page):
    """The card had the time of the finals, the table of the best that of an early trial."""
    (card,) = re.findall(r"<b>([\d.]+) ms</b><span>median", page)
    rows = re.findall(r'<tr class="winner">(.*?)</tr>', page, re.DOTALL)
    times = [re.findall(r'<td class="number">([\d.]+)</td>', row) for row in rows]
    best, final = times
    assert best[1] == final[0] == card


def test_a_row_unfolds_to_its_config_and_code():
    history = History()
    history.on_start(make_start(code_of=lambda config: f"code <of> {config.block_sizes}"))
    history.on_outcome(timed(DEFAULT, 0.0735), Progress(1.0, 15.0, 1, 0))
    history.on_end(make_result())
    page = make_page(history)
    assert f"<pre>{escape(repr(DEFAULT))}</pre>" in page
    assert f"<pre>code &lt;of&gt; {DEFAULT.block_sizes}</pre>" in page


def test_code_that_cannot_be_made_leaves_its_row():
    def fail(config: Config) -> str:
        raise InternalError(problem="no code")

    history = History()
    history.on_start(make_start(code_of=fail))
    history.on_outcome(timed(DEFAULT, 0.0735), Progress(1.0, 15.0, 1, 0))
    history.on_end(make_result())
    assert f"<pre>{escape(repr(DEFAULT))}</pre>" in make_page(history)


def test_everything_from_outside_is_escaped():
    config = Config(block_sizes=[1], tunable=EVIL)  # pyright: ignore[reportCallIssue]
    history = History()
    history.on_start(make_start(kernel=EVIL, device=EVIL, arguments=EVIL, judge=EVIL, method=EVIL))
    history.on_outcome(timed(config, 0.5), Progress(1.0, 15.0, 1, 0))
    history.on_outcome(failed(config, Verdict.WRONG, EVIL), Progress(1.0, 15.0, 2, 0))
    history.on_end(make_result(config=config, problem=EVIL))
    page = make_page(history)
    assert page.count("<script") == 1
    assert escape(EVIL) in page
    assert Reader(page).texts["h1"] == [EVIL]


def test_a_search_without_success_shows_the_problem():
    page = small_page(ms=float("inf"), problem="none of 2\n  crashed", stop=StopReason.NO_RUNNER)
    assert '<div class="problem">none of 2\n  crashed</div>' in page
    assert "median" not in Reader(page).all_text


def test_a_winner_that_is_the_default_says_so():
    assert "The winner is the default config." in small_page(config=DEFAULT)


def test_versions_are_named(page):
    text = Reader(page).all_text
    for name in ("torch", "Python", "system", "NVIDIA H200 (cuda:90)", "ModelFirstSearch"):
        assert name in text


def test_files_are_written_at_the_end(tmp_path):
    tell(ReportListener(tmp_path / "made" / "search"), count=40)
    names = {path.name for path in (tmp_path / "made").iterdir()}
    assert names == {"search.html", "search.svg", "search.predicted.svg"}


def test_a_stored_winner_leaves_no_page(tmp_path):
    ReportListener(tmp_path / "search").on_end(make_result(stop=StopReason.CACHED))
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_a_warning(tmp_path, caplog):
    (tmp_path / "file").write_text("in the way")
    history = History()
    tell(history, count=40)
    assert write_report(history, tmp_path / "file" / "search") == []
    assert len(caplog.records) == 3


def test_options_choose_the_reports(tmp_path):
    plain = choose_listeners(TuneOptions(Settings()))
    assert [type(listener) for listener in plain] == [LogListener]
    full = choose_listeners(TuneOptions(Settings(autotune_log=str(tmp_path / "search"))))
    assert [type(listener) for listener in full] == [LogListener, TableListener, ReportListener]


def test_a_busy_machine_is_said_at_the_top_instead_of_a_factor():
    quiet = small_page(ms=0.05, spread=0.02)
    busy = small_page(ms=0.05, spread=231.05, disturbed=1.0)
    factor, head = "the speed of the default", "others had the cores in 100% of the measurements"
    assert factor in quiet
    assert head not in quiet
    assert factor not in busy
    assert busy.index(head) < busy.index("The search")
    assert "23105%" not in busy


def test_a_busy_machine_is_said_in_the_headline():
    quiet, busy = small_page(ms=0.05), small_page(ms=0.05, disturbed=0.5)
    unsteady = small_page(ms=0.05, noise=0.4)
    assert "on a busy machine: these times say little</span></h1>" in busy
    assert "times were unsteady: these times say little</span></h1>" in unsteady
    assert "say little" not in quiet
    for page in (busy, unsteady):
        assert "of the roofline" not in page
        assert "the speed of the default" not in page


def test_a_disturbed_measurement_is_marked_in_the_table():
    history = History()
    history.on_start(make_start())
    history.on_outcome(timed(DEFAULT, 0.07), Progress(1.0, 15.0, 1, 0))
    quiet = make_page(history)
    history.on_outcome(
        timed(Config(block_sizes=[2]), 0.09, is_disturbed=True), Progress(2.0, 15.0, 2, 0)
    )
    busy = make_page(history)
    assert "isturbed" not in quiet
    assert "Disturbed: others had the cores while a trial was timed." in busy
    assert busy.count("model; disturbed") == 1
