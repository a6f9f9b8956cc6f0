"""The terminal: what was measured, averages with counts, failures with blame and reason."""

from __future__ import annotations

import io
import re
from dataclasses import replace

from rich.console import Console

from tests.bench.made_up_rows import disturbed_row, fail, make_row, make_rows
from tilesmith.bench.plan import METRICS
from tilesmith.bench.row import INTERPRETED, Cause, Status
from tilesmith.bench.summary import counts_text, print_summary, row_line


def printed(rows, metrics=METRICS) -> str:
    out = io.StringIO()
    print_summary(rows, metrics, Console(file=out))
    return out.getvalue()


def test_rows_have_their_numbers():
    text = printed([make_row(latency_ms=0.1234, speedup=1.5, tflops=420.0, error=1.9e-3)])
    (line,) = [line for line in text.splitlines() if "0.1234" in line]
    assert line.split() == [
        *("256x256x256", "bfloat16", "tilesmith", "0.1234", "±1.0%", "1.50x", "±1.3%"),
        *("420", "900", "1.9e-03", "21%", "0.84"),
    ]


def test_rows_that_are_not_of_a_first_choice_say_so():
    why = "the default config of gemm does not build: needs 300 KB of shared memory"
    rows = [make_row(input_label=label, fallback=why) for label in "ab"]
    rows.append(make_row(input_label="c", fallback=INTERPRETED))
    text = printed([*rows, make_row(input_label="d")])
    lines = text.splitlines()
    marks = [line.rpartition("0.84")[2].strip() for line in lines if " 0.84" in line]
    assert marks == ["fallback config", "fallback config", "interpreted", ""]
    assert f"gemm tilesmith fell back: {why} (2 rows)" in lines
    assert f"gemm tilesmith fell back: {INTERPRETED} (1 row)" in lines
    assert row_line(rows[0]).endswith("1.20x ±1.3% (fallback config)")


def test_times_of_results_that_were_not_checked_say_so():
    why = "accuracy not checked: out of memory while working out the reference"
    rows = [make_row(input_label=label, reason=why) for label in "ab"]
    assert f"gemm tilesmith: {why} (2 rows)" in printed(rows).splitlines()
    assert row_line(rows[0]).endswith(f"1.20x ±1.3% ({why})")


def test_means_of_many_kernels_with_names_of_their_own_are_lines():
    names = [f"tilesmith_kernel_{number}" for number in range(12)]
    rows = [make_row(operator=name[10:], implementation=name) for name in names]
    lines = printed(rows).splitlines()
    assert "  kernel_3: tilesmith_kernel_3 1.20x (1 of 1)" in lines
    assert f"  all: {', '.join(f'{name} 1.20x (1 of 1)' for name in names)}" in lines
    table = printed(rows[:3]).splitlines()
    assert any(line.split() == names[:3] for line in table)


def test_metrics_choose_the_columns():
    text = printed(make_rows(), ["latency", "gbps"])
    assert "GB/s" in text
    assert "TFLOP/s" not in text
    assert "geometric" not in text


def test_columns_without_any_value_are_left_out():
    text = printed([make_row(tflops=None, tune_s=None)])
    assert "TFLOP/s" not in text
    assert "tune" not in text


def test_a_narrow_terminal_shows_fewer_columns_and_cuts_none():
    out = io.StringIO()
    print_summary(make_rows(), METRICS, Console(file=out, width=90, force_terminal=True))
    text = re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue())
    assert "theirs failed: wrong result" in text
    assert "TFLOP/s" not in text
    assert "…" not in text
    assert max(map(len, text.partition("rms_norm")[0].splitlines())) <= 90


def test_a_very_narrow_terminal_has_a_line_for_each_row():
    out = io.StringIO()
    rows = [make_row(latency_ms=0.1234, speedup=1.5), fail(make_row(input_id=1), Cause.CRASH, "x")]
    print_summary(rows, METRICS, Console(file=out, width=40, force_terminal=True))
    lines = re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue()).splitlines()
    assert lines[:2] == [row_line(row) for row in rows]
    assert "0.1234 ms" in lines[0]


def test_averages_have_counts():
    text = printed(make_rows())
    (line,) = [
        line for line in text.splitlines() if line.split()[:1] == ["rms_norm"] and "x (" in line
    ]
    assert "(3 of 4)" in line
    assert "(4 of 4)" in line
    assert "(3 of 3)" in line  # One was not available.


def test_failures_are_told_in_full_lines_even_if_piped():
    text = printed(make_rows())
    expected = (
        "gemm 512x512x512 eager: theirs failed: wrong result: "
        "element [3, 17] is 4.1, should be 3.9; 12 ulp allowed"
    )
    assert expected in text.splitlines()
    assert text.splitlines()[-1] == (
        "60 rows: 53 ok, 1 ours failed, 1 harness failed, 4 theirs failed, 1 not available"
    )


def test_what_is_not_available_is_named_with_its_reason():
    row = replace(
        make_row(implementation="nosuch.fn"),
        status=Status.UNAVAILABLE,
        reason="No module named 'nosuch'",
    )
    lines = printed([row, replace(row, input_id=7)]).splitlines()
    assert "nosuch.fn was not available: No module named 'nosuch' (2 rows)" in lines


def test_text_in_brackets_is_no_markup():
    row = fail(make_row(input_label="[bold]"), Cause.EXCEPTION, "[red]oh[/red]")
    assert "[bold]" in printed([row])
    assert "[red]oh[/red]" in printed([row])


def test_one_row_in_one_line():
    row = make_row(latency_ms=0.5, speedup=1.2, spread=0.01)
    assert row_line(row) == "gemm 256x256x256 tilesmith: 0.5 ms ±1.0% 1.20x ±1.3%"
    assert row_line(make_row(speedup=None, spread=None, noise_floor=None)) == (
        "gemm 256x256x256 tilesmith: 0.5 ms"
    )
    absent = fail(make_row(), Cause.NOT_INSTALLED, "no helion", Status.UNAVAILABLE)
    assert row_line(absent).endswith("tilesmith: unavailable: not installed: no helion")


def test_a_speedup_is_as_unsure_as_its_rounds_and_its_copies_say():
    assert row_line(make_row(noise_floor=0.021)).endswith("±2.1% 1.20x ±2.1%")
    assert row_line(make_row(speedup_spread=None)).endswith("±1.0% 1.20x")


def test_disturbed_numbers_say_so_in_the_place_of_their_noise():
    assert row_line(disturbed_row()).endswith("tilesmith: 0.012 ms ±1.0% 998.3x disturbed")
    both = disturbed_row(is_disturbed=True)
    assert row_line(both).endswith("0.012 ms disturbed 998.3x disturbed")
    alone = make_row(is_disturbed=True, speedup=None)
    assert row_line(alone).endswith("0.5 ms disturbed")


def test_disturbed_speedups_rule_no_mean_and_are_warned_of_in_the_last_line():
    text = printed([make_row(speedup=2.0), disturbed_row(input_label="8")])
    assert "2.00x (1 of 2, 1 disturbed)" in text
    assert text.splitlines()[-2:] == [
        "2 rows: 2 ok",
        "the machine was busy: 1 row disturbed, 1 speedup left out of means; "
        "--resume --retry-disturbed runs them again",
    ]


def test_a_disturbed_time_without_a_speedup_is_warned_of_too():
    text = printed([make_row(is_disturbed=True, speedup=None)])
    assert "the machine was busy: 1 row disturbed; --resume" in text.splitlines()[-1]


def test_means_of_nothing_but_disturbed_rows_are_none():
    assert "- (0 of 1, 1 disturbed)" in printed([disturbed_row()])


def test_counts():
    assert counts_text([make_row()]) == "1 row: 1 ok"
