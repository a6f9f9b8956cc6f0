"""What the time until the first measurement went into, in one line."""

from __future__ import annotations

from tilesmith.schedule.config import Config
from tilesmith.tune.listener import Tally
from tilesmith.tune.result import StopReason, Timeline, TuneResult


def test_a_line_tells_what_was_noted_in_order():
    timeline = Timeline()
    for name, seconds in {"measured": 2.0, "tried": 1.9, "runner": 1.5, "build": 0.41}.items():
        timeline.note(name, seconds)
    assert timeline.text == (
        "first time after 2.00 s: runner up at 1.50, first build at 0.41, first candidate at 1.90"
    )


def test_the_first_note_counts_and_what_was_there_before_is_at_zero():
    timeline = Timeline()
    timeline.note("measured", 3.0)
    timeline.note("measured", 4.0)
    timeline.note("runner", -20.0)
    assert timeline.text == "first time after 3.00 s: runner up at 0.00"


def test_without_a_measurement_it_tells_how_far_the_search_came():
    timeline = Timeline()
    assert timeline.text == ""
    timeline.note("runner", 1.0)
    assert timeline.text == "no time yet: runner up at 1.00"


def test_a_budget_that_ends_before_a_measurement_is_told_with_advice():
    spent = TuneResult(Config(), StopReason.BUDGET)
    problem = Tally().complete(spent, None).problem
    assert problem.startswith("the budget is used up before a candidate was measured; ")
    assert "allow more seconds (budget=60" in problem
    other = TuneResult(Config(), StopReason.INTERRUPTED)
    assert Tally().complete(other, None).problem == "interrupted before a candidate was measured"
