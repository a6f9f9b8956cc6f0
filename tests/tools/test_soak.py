"""The end of a soak: what counts as growth."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tools.soak.__main__ import soak
from tools.soak.sample import Latency, Sample, judge, take_sample

BEGIN = Sample(0.0, 500.0, 6, 9, 0, 0, 1000, Latency(60.0, 5000.0), Latency(70.0, 5000.0))


def samples(**changes: Any) -> list[Sample]:
    """Twelve in an hour; a function of the place in the hour, from 0 to 1, for some fields."""
    return [
        replace(
            BEGIN,
            seconds=300.0 * number,
            **{name: change(number / 11) for name, change in changes.items()},
        )
        for number in range(12)
    ]


def test_what_stays_as_it_is_is_no_problem():
    assert judge(samples(), []) == []


@pytest.mark.parametrize(
    ("field", "change", "problem"),
    [
        ("resident_mb", lambda share: 500 + 200 * share, "memory grows by 218 MB an hour"),
        ("descriptors", lambda share: 6 + 60 * share, "descriptors grow from"),
        ("threads", lambda share: 9 + 60 * share, "threads grow from"),
        ("children", lambda share: 60 * share, "children grow from"),
        ("files", lambda share: 60 * share, "files grow from"),
        ("ours", lambda share: Latency(60 + 1000 * share, 5000.0), "times as long as eager's"),
        ("ours", lambda share: Latency(60, 11000.0), "p99 of calls is 2.20 times eager's"),
    ],
)
def test_growth_is_told(field: str, change: Any, problem: str):
    (found,) = judge(samples(**{field: change}), [])
    assert problem in found


def test_a_machine_that_gets_slower_is_not_our_growth():
    slower = samples(
        ours=lambda share: Latency(60 + 300 * share, 5000 + 90000 * share),
        eager=lambda share: Latency(70 + 400 * share, 5000 + 80000 * share),
    )
    assert judge(slower, []) == []


def test_wrong_results_are_problems_however_short_the_run():
    assert judge([BEGIN], ["made_3 is wrong"]) == [
        "made_3 is wrong",
        "too few samples to tell: run longer",
    ]


def test_a_sample_is_of_this_process(tmp_path: Path):
    Path(tmp_path, "folder").mkdir()
    Path(tmp_path, "folder", "file").touch()
    found = take_sample(1.0, [1e-6] * 100, [2e-6] * 100, str(tmp_path))
    assert found.files == 2
    assert found.resident_mb > 10
    assert found.threads >= 1
    assert found.ratio == pytest.approx(0.5)
    assert "ours     1.0 /      1.0 us" in found.line()


@pytest.mark.full
def test_half_a_minute_of_everything():
    """On a busy machine this is too short to judge latency by; results and threads must hold."""
    seen, problems = soak(0.5, "cpu", 1)
    assert seen[-1].calls
    assert not [text for text in problems if "off by" in text or "ended by" in text]
