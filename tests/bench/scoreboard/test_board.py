"""A scoreboard's lines: who is compared with whom, what counts, what order they stand in."""

from __future__ import annotations

import pytest

from tests.bench.made_up_rows import fail, make_row
from tests.page_reader import Reader, assert_nothing_is_fetched
from tilesmith.bench.journal import Results
from tilesmith.bench.row import Cause, Owner, Row, Status
from tilesmith.bench.scoreboard import board as boards
from tilesmith.bench.scoreboard.board import Board, make_board
from tilesmith.bench.scoreboard.page import make_page, markdown_text, terminal_lines

THEIRS = Owner.THEIRS


def rows_of(operator: str, input_id: int = 0, **speedups: float) -> list[Row]:
    """A row for each implementation, eager with a speedup of one among them."""
    label = f"input {input_id}"
    place = {"operator": operator, "input_id": input_id, "input_label": label}
    return [
        make_row(
            **place,
            implementation=name,
            owner=Owner.OURS if name.startswith("tilesmith") else THEIRS,
            speedup=speedup,
            latency_ms=1 / speedup,
            roofline_ms=0.25,
            limiter="memory <bandwidth>",
        )
        for name, speedup in {**speedups, "eager": 1.0}.items()
    ]


def board_of(*rows: Row, before: list[Row] | None = None) -> Board:
    last = Results(before) if before is not None else None
    return make_board(Results(rows, {"started": "2026-01-02"}), {"a": "family"}, last)


def test_the_best_of_ours_stands_against_the_best_of_all_others() -> None:
    found = rows_of("a", tilesmith_one=0.5, tilesmith_two=0.9, torch_compile=1.2, triton=0.3)
    (line,) = board_of(*found).lines
    assert line.ours is not None
    assert line.rival is not None
    assert (line.ours.implementation, line.rival.implementation) == (
        "tilesmith_two",
        "torch_compile",
    )
    assert line.ratio == pytest.approx(0.75)
    assert line.noise == pytest.approx(0.026)
    assert line.roofline_share == pytest.approx(0.225)
    assert line.is_behind


def test_a_search_is_no_default() -> None:
    found = rows_of("a", tilesmith=0.8, tilesmith_tuned=1.6)
    board = board_of(*found)
    assert board.lines[0].ratio == pytest.approx(0.8)
    assert board.lines[0].tuned_ratio == pytest.approx(1.6)
    assert board.search_gain == (pytest.approx(2.0), 1)


def test_what_lies_within_noise_is_not_behind() -> None:
    (line,) = board_of(*rows_of("a", tilesmith=0.98)).lines
    assert not line.is_behind
    exact = [make_row(speedup=0.995, speedup_spread=0.0, noise_floor=0.0)]
    exact += [make_row(implementation="eager", owner=THEIRS, speedup=1.0, noise_floor=0.0)]
    (line,) = board_of(*exact).lines
    assert line.noise >= boards.LEAST_NOISE
    assert not line.is_behind


def test_lines_are_sorted_by_distance_and_failures_come_first() -> None:
    failed = rows_of("c", tilesmith=1.0)
    failed[0] = fail(failed[0], Cause.EXCEPTION, "RuntimeError: no")
    board = board_of(*rows_of("a", tilesmith=2.0), *rows_of("b", tilesmith=0.4), *failed)
    assert [line.first.operator for line in board.lines] == ["c", "b", "a"]
    assert board.lines[0].problem == "tilesmith: RuntimeError: no"
    assert [line.first.operator for line in board.behind] == ["b"]


def test_halves_are_averaged_apart() -> None:
    rows = [row for n in range(4) for row in rows_of("a", n, tilesmith=4.0 if n % 2 else 1.0)]
    assert board_of(*rows).halves == {
        "all inputs": (pytest.approx(2.0), 4),
        "fitted": (pytest.approx(1.0), 2),
        "held out": (pytest.approx(4.0), 2),
    }


def test_disturbed_lines_are_shown_and_do_not_count() -> None:
    rows = rows_of("a", tilesmith=0.1)
    rows = [make_row(**{**vars(row), "is_speedup_disturbed": True}) for row in rows]
    board = board_of(*rows)
    assert board.lines[0].ratio == pytest.approx(0.1)
    assert not board.behind
    assert board.halves["all inputs"] == (None, 0)
    assert "disturbed" in markdown_text(board, "Board")


def test_results_that_are_refused_on_both_sides_are_the_judges() -> None:
    rows = rows_of("a", tilesmith=1.0)
    wrong = [fail(row, Cause.WRONG_RESULT, "451 elements") for row in rows]
    assert board_of(*wrong).lines[0].is_refused_on_both_sides
    assert not board_of(wrong[0], rows[1]).lines[0].is_refused_on_both_sides
    absent = fail(rows[0], Cause.NOT_INSTALLED, "", Status.UNAVAILABLE)
    assert not board_of(absent, wrong[1]).lines[0].is_refused_on_both_sides


def test_changes_are_those_of_our_row() -> None:
    before = rows_of("a", tilesmith=0.5, torch_compile=1.0)
    board = board_of(*rows_of("a", tilesmith=1.0, torch_compile=1.0), before=before)
    change = board.change_of(board.lines[0])
    assert boards.change_text(change) == "faster (-50%)"
    added = board_of(*rows_of("b", tilesmith=1.0), before=before)
    assert boards.change_text(added.change_of(added.lines[0])) == "new"


def test_predictions_are_ranked_by_family() -> None:
    times = {f"{n}": {"predicted_ms": n, "latency_ms": n**2} for n in (1, 2, 3, 4)}
    rows = [make_row(operator="a", input_label=label, **both) for label, both in times.items()]
    assert board_of(*rows).correlations == {"family": pytest.approx(1.0)}
    assert board_of(*rows[:3]).correlations == {}


def full_board() -> Board:
    failed = rows_of("c", tilesmith=1.0)
    failed[0] = fail(failed[0], Cause.EXCEPTION, "RuntimeError: <no> & | no")
    rows = [*rows_of("a", 1, tilesmith=0.5, tilesmith_tuned=0.7), *rows_of("b", tilesmith=2.0)]
    return board_of(*rows, *failed)


def test_the_page_has_every_line_and_stands_alone() -> None:
    page = make_page(full_board(), "Scoreboard")
    assert_nothing_is_fetched(page)
    text = Reader(page).all_text
    for wanted in ("input 1 bfloat16°", "0.50x", "RuntimeError: <no> & | no", "memory <bandwidth>"):
        assert wanted in text
    cells = Reader(page).texts["td"]
    assert cells.index("0.50x") < cells.index("2.00x")


def test_the_table_for_docs_has_a_line_for_each() -> None:
    text = markdown_text(full_board(), "Scoreboard")
    assert "started 2026-01-02" in text
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert len(table) == 2 + 3
    # Nothing changed since a run before: there is no such column.
    assert "since last" not in text
    assert {line.count("|") for line in table} == {11}


def test_a_terminal_gets_the_figures_and_who_is_behind() -> None:
    lines = list(terminal_lines(full_board()))
    assert lines[0] == "1.00x of the best rival, all inputs: geomean of 2"
    assert any("a input 1 bfloat16°: 0.50x" in line for line in lines)
    assert not any(line.startswith("  b ") for line in lines)
