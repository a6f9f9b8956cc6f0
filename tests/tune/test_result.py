"""What the time until the first measurement went into, in one line."""

from __future__ import annotations

from tilesmith.tune.result import Timeline


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


def test_without_a_measurement_there_is_no_line():
    timeline = Timeline()
    timeline.note("runner", 1.0)
    assert timeline.text == ""
