"""The page of a run: everything that was promised, escaped, and nothing from elsewhere."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from tests.bench.made_up_page import made_up_page
from tests.bench.made_up_rows import CONFIG, disturbed_row, fail, make_row
from tests.page_reader import Reader, assert_nothing_is_fetched
from tilesmith.bench.journal import Results
from tilesmith.bench.report.html import make_page, write_page
from tilesmith.bench.report.pictures import write_pictures
from tilesmith.bench.row import Cause

EVIL = '<script>alert("x & y")</script>'


@pytest.fixture(scope="module")
def page() -> str:
    return made_up_page()


def section_of(page: str, title: str) -> str:
    return page.partition(f"<h2>{title}</h2>")[2].partition("</section>")[0]


def test_the_page_is_well_formed_and_has_all_sections(page):
    reader = Reader(page)
    assert reader.headings == [
        *("Failures", "Speedups", "Roofline", "gemm", "rms_norm", "Environment"),
        "Options",
    ]
    assert reader.texts["h1"] == ["Benchmark on NVIDIA H200"]


def test_nothing_is_fetched_from_elsewhere(page):
    assert_nothing_is_fetched(page)


def test_pictures_are_drawn_once_for_both_themes(page):
    # Means, two operators, roofline, bandwidth.
    assert page.count("<svg") == 5
    assert "<img" not in page
    # Bitmaps in two themes took 700,000 characters.
    assert len(page) < 150_000


def test_failures_have_blame_and_reason(page):
    table = section_of(page, "Failures")
    assert table.count("<tr") == 7
    assert table.count("theirs failed") == 4
    assert "needs 150 GiB, 139 GiB are there" in table
    assert "RuntimeError: &lt;no&gt; kernel &amp; no luck" in table
    assert "in spin" in table  # All lines of a reason, when opened.


def test_averages_have_counts(page):
    reader = Reader(page)
    cards = dict(zip(reader.texts["span"], reader.texts["b"]))
    assert cards["tilesmith_tuned, geomean of 10 of 10"] == "1.22x"
    assert cards["failures of ours"] == "1"
    assert cards["failures of others"] == "4"
    assert "tilesmith 1.07x (3 of 4)" in section_of(page, "rms_norm")


def test_every_row_is_in_the_table_of_its_operator(page):
    table = section_of(page, "gemm")
    assert len(re.findall("<tr", table)) == 1 + 36
    assert table.count('<tr class="first">') == 6
    assert 'class="sortable"' in table
    assert "theirs failed: hang: no result for 300 s" in table


def test_configs_can_be_pasted(page):
    shown = section_of(page, "gemm") + section_of(page, "rms_norm")
    assert shown.count(f"<pre>{CONFIG}</pre></details>") == 19


def test_a_row_unfolds_to_its_config_and_its_code():
    item = make_row(operator="gemm", config=CONFIG, code="for i in range(3) <by 16>:")
    page = make_page(Results([item], {}))
    assert f"<pre>{CONFIG}</pre><pre>for i in range(3) &lt;by 16&gt;:</pre></details>" in page


def test_the_environment_and_options_are_named(page):
    text = section_of(page, "Environment")
    for value in ("2026-01-02", "cuda:90", "3.6.0"):
        assert f"<td>{value}</td>" in text
    assert "<td>a, b</td>" in section_of(page, "Options")
    assert "<td>warm</td>" in section_of(page, "Options")
    # Rows know better than the process that started them.
    assert "<td>2.11.0</td>" in text


def test_options_that_were_not_used_are_left_out(page):
    assert "use_cache" not in section_of(page, "Options")


def test_everything_from_outside_is_escaped():
    row = make_row(operator=EVIL, input_label=EVIL, implementation=EVIL, config=EVIL, timer=EVIL)
    failed = fail(row, Cause.EXCEPTION, f"{EVIL}\n{EVIL}")
    page = make_page(Results([row, failed, replace(row, reason=EVIL, environment={EVIL: EVIL})]))
    assert page.count("<script") == 1
    Reader(page)


def test_a_fallback_is_shown_with_its_row():
    page = make_page(Results([make_row(fallback="the default config does not build: too large")]))
    assert "the default config does not build: too large</span></td>" in page


def test_a_remark_on_a_good_row_is_shown():
    page = make_page(Results([make_row(reason="eager failed: out of memory", speedup=None)]))
    assert "eager failed: out of memory" in section_of(page, "gemm")


def test_disturbed_rows_are_warned_of_and_have_no_bar():
    rows = [make_row(), disturbed_row(input_label="8")]
    page = make_page(Results(rows))
    assert "the machine was busy: 1 row disturbed, 1 speedup left out" in page
    table = section_of(page, "gemm")
    assert "998.3x disturbed" in table
    assert "1.20x ±1.3%" in table
    assert (table.count('class="bar'), table.count("width:90px")) == (1, 1)
    assert "tilesmith 1.20x (1 of 2, 1 disturbed)" in table
    assert "busy" not in make_page(Results(rows[:1]))


def test_a_run_without_failures_says_so():
    assert "None." in section_of(make_page(Results([make_row()])), "Failures")


def test_a_run_of_failures_only_has_a_page():
    page = make_page(Results([fail(make_row(), Cause.HANG, "x")]))
    assert Reader(page).headings == ["Failures", "gemm", "Environment"]
    assert "<svg" not in page


def test_files_are_written(tmp_path):
    rows = [make_row(), make_row(operator="norm", tflops=None)]
    write_page(Results(rows), tmp_path / "made" / "page.html")
    assert (tmp_path / "made" / "page.html").read_text().startswith("<!DOCTYPE html>")
    written = write_pictures(Results(rows), tmp_path / "pictures")
    assert {path.name for path in written} == {
        *("speedups.svg", "roofline.svg", "bandwidth.svg", "speedups-gemm.svg"),
        "speedups-norm.svg",
    }
    assert all(path.read_text().startswith("<svg xmlns=") for path in written)
