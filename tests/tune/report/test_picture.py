"""Pictures: made for every kind of search, of a sensible size, showing the right numbers."""

from __future__ import annotations

import struct
import sys

import pytest

from tests.tune.report.searches import DEFAULT, failed, make_result, make_start, tell, timed
from tilesmith.lab.pages import DARK, LIGHT, PictureError
from tilesmith.store.outcome import Outcome, Verdict
from tilesmith.tune.listener import History, Progress
from tilesmith.tune.report import page
from tilesmith.tune.report.page import (
    best_so_far,
    draw_predictions,
    draw_search,
    predicted_pairs,
)

pytest.importorskip("matplotlib")


def history_of(outcomes: list[Outcome], **result) -> History:
    history = History()
    history.on_start(make_start())
    for number, outcome in enumerate(outcomes, 1):
        history.on_outcome(outcome, Progress(float(number), 15.0, number, 0))
    history.on_end(make_result(**result))
    return history


@pytest.fixture(scope="module")
def history() -> History:
    made = History()
    tell(made)
    return made


def size_of(png: bytes | None) -> tuple[int, int]:
    assert png is not None
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    return struct.unpack(">II", png[16:24])


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_the_picture_of_a_search(history, theme):
    png = draw_search(history, theme)
    assert size_of(png) == (1350, 750)
    assert 10_000 < len(png or b"") < 250_000


def test_the_picture_of_predictions(history):
    assert size_of(draw_predictions(history)) == (930, 900)


@pytest.mark.parametrize(
    "outcomes",
    [
        [timed(DEFAULT, 0.5)],
        [failed(DEFAULT, Verdict.CRASHED, "x")] * 3,
        [timed(DEFAULT, 0.001), timed(DEFAULT, 5000.0), failed(DEFAULT, Verdict.HUNG, "x")],
        [timed(DEFAULT, 0.5), timed(DEFAULT, 0.5)],
    ],
    ids=["one", "failures only", "seven decades", "equal"],
)
def test_odd_searches_are_drawn_too(outcomes):
    assert size_of(draw_search(history_of(outcomes))) == (1350, 750)


def test_without_trials_there_is_no_picture():
    assert draw_search(history_of([])) is None
    assert draw_predictions(history_of([])) is None


def test_two_predictions_are_no_picture():
    assert draw_predictions(history_of([timed(DEFAULT, 0.5, 0.4)] * 2)) is None


def test_the_line_of_the_best_falls_only(history):
    places, bests = best_so_far(history)
    assert bests == sorted(bests, reverse=True)
    assert places == sorted(places)
    assert places[-1] == 120
    assert bests[-1] == min(trial.outcome.time_ms for trial in history.timed)


def test_a_best_found_late_is_not_drawn_early():
    history = history_of([failed(DEFAULT, Verdict.HUNG, "x"), timed(DEFAULT, 2), timed(DEFAULT, 3)])
    assert best_so_far(history) == ([2, 3], [2, 2])


def test_pairs_need_a_prediction():
    outcomes = [timed(DEFAULT, 0.5, 0.4), timed(DEFAULT, 0.6), timed(DEFAULT, 0.7, float("inf"))]
    assert predicted_pairs(history_of(outcomes)) == [(0.4, 0.5)]


def test_without_matplotlib_an_error_says_what_to_do(history, monkeypatch):
    for name in list(sys.modules):
        if name.startswith("matplotlib"):
            monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(PictureError, match=r"pip install tilesmith\[report\]"):
        draw_search(history)


def test_the_title_names_the_result(history):
    assert page._search_title(history) == (
        "softmax on NVIDIA H200 (cuda:90): 0.0581 ms, 96% of the roofline"
    )
    nothing = history_of([failed(DEFAULT, Verdict.HUNG, "x")], ms=float("inf"))
    assert page._search_title(nothing) == "softmax on NVIDIA H200 (cuda:90)"
