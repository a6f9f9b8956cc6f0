"""Pictures: made for every kind of search, of a sensible size, showing the right numbers."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from tests.tune.report.searches import DEFAULT, failed, make_result, make_start, tell, timed
from tilesmith.lab.drawing.chart import standalone
from tilesmith.store.outcome import Outcome, Verdict
from tilesmith.tune.listener import History, Progress
from tilesmith.tune.report.page import course_of, predicted_pairs, search_title
from tilesmith.tune.report.pictures import best_so_far, draw_predictions, draw_search

NUMBER = re.compile(r'(?<![\w-])(?:c?[xy][12]?|r)="([^"]+)"')


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


def checked(picture: str | None) -> str:
    """A picture that is well formed, and has nothing outside of its frame."""
    assert picture is not None
    root = ElementTree.fromstring(standalone(picture))
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    for number in NUMBER.findall(picture):
        assert -1 <= float(number) <= max(width, height)
    return picture


def test_the_picture_of_a_search(history):
    picture = checked(draw_search(course_of(history)))
    assert picture.count("<circle") == len(history.timed) + 1  # and one in the legend
    assert picture.count('class="cross"') == len(history.failed) + 1
    assert f"rejected ({len(history.failed)})" in picture
    assert "default config, 0.0735 ms" in picture
    assert len(picture) < 60_000


def test_marks_say_what_they_are(history):
    first = history.timed[0]
    text = checked(draw_search(course_of(history)))
    assert f"<title>{first.number}: " in text
    assert "Config(" in text


def test_the_picture_of_predictions(history):
    assert "rank correlation" in checked(draw_predictions(predicted_pairs(history)))


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
    picture = checked(draw_search(course_of(history_of(outcomes))))
    # No legend without a mark.
    assert ("rejected" in picture) == any(o.time_ms == float("inf") for o in outcomes)
    assert ("one config" in picture) == any(o.time_ms < float("inf") for o in outcomes)


def test_without_trials_there_is_no_picture():
    assert draw_search(course_of(history_of([]))) is None
    assert draw_predictions(predicted_pairs(history_of([]))) is None


def test_two_predictions_are_no_picture():
    assert draw_predictions(predicted_pairs(history_of([timed(DEFAULT, 0.5, 0.4)] * 2))) is None


def test_the_line_of_the_best_falls_only(history):
    places, bests = best_so_far(course_of(history))
    assert bests == sorted(bests, reverse=True)
    assert places == sorted(places)
    assert places[-1] == 120
    assert bests[-1] == min(trial.outcome.time_ms for trial in history.timed)


def test_a_best_found_late_is_not_drawn_early():
    history = history_of([failed(DEFAULT, Verdict.HUNG, "x"), timed(DEFAULT, 2), timed(DEFAULT, 3)])
    assert best_so_far(course_of(history)) == ([2, 3], [2, 2])


def test_pairs_need_a_prediction():
    outcomes = [timed(DEFAULT, 0.5, 0.4), timed(DEFAULT, 0.6), timed(DEFAULT, 0.7, float("inf"))]
    assert predicted_pairs(history_of(outcomes)) == [(0.4, 0.5)]


def test_the_title_names_the_result(history):
    assert search_title(history) == (
        "softmax on NVIDIA H200 (cuda:90): 0.0581 ms, 96% of the roofline"
    )
    nothing = history_of([failed(DEFAULT, Verdict.HUNG, "x")], ms=float("inf"))
    assert search_title(nothing) == "softmax on NVIDIA H200 (cuda:90)"
