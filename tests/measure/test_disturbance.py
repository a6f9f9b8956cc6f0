"""Disturbances: told from what threads waited for cores, or from processor time and load."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilesmith.measure import disturbance
from tilesmith.measure.disturbance import Reading, is_disturbed, read_meter


def between(wall_s: float, **waits: float) -> bool:
    """Whether a second-long wait of each thread before the first reading matters as little."""
    before = Reading(5.0, 2.0, dict.fromkeys(waits, 1.0))
    after = Reading(5.0 + wall_s, 2.0, {name: 1.0 + wait for name, wait in waits.items()})
    return is_disturbed(before, after)


@pytest.mark.parametrize(("waited", "expected"), [(0.0, False), (0.009, False), (0.011, True)])
def test_a_tenth_of_the_time_may_be_waited(waited, expected):
    assert between(0.1, main=waited) is expected


def test_the_thread_that_waited_longest_counts():
    assert between(0.1, main=0.0, pool=0.05)
    assert not between(0.1, **{f"pool{number}": 0.005 for number in range(64)})


def test_a_thread_that_began_meanwhile_has_waited_from_nothing():
    assert is_disturbed(Reading(0.0, 0.0, {"a": 1.0}), Reading(1.0, 1.0, {"a": 1.0, "b": 0.5}))
    assert not is_disturbed(Reading(0.0, 0.0, {"a": 1.0, "b": 0.5}), Reading(1.0, 1.0, {"a": 1.0}))


def test_a_pause_of_its_own_is_no_disturbance_where_waits_are_known():
    before, after = Reading(0.0, 0.0, {"a": 1.0}), Reading(1.0, 0.0, {"a": 1.0}, is_crowded=True)
    assert not is_disturbed(before, after)


@pytest.mark.parametrize(
    ("used", "is_crowded", "expected"),
    [(0.79, True, True), (0.81, True, False), (2.0, True, False), (0.1, False, False)],
)
def test_without_waits_little_processor_time_on_a_crowded_machine_tells(used, is_crowded, expected):
    after = Reading(1.0, used, is_crowded=is_crowded)
    assert is_disturbed(Reading(0.0, 0.0), after) is expected


@pytest.fixture
def tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(disturbance, "TASKS", tmp_path)
    monkeypatch.setattr(disturbance.os, "cpu_count", lambda: 2)
    monkeypatch.setattr(disturbance.os, "getloadavg", lambda: (2.5, 0.0, 0.0), raising=False)
    return tmp_path


def add_thread(tasks: Path, name: str, text: str) -> None:
    (tasks / name).mkdir()
    (tasks / name / "schedstat").write_text(text)


def test_waits_of_all_threads_are_read(tasks):
    add_thread(tasks, "7", "1000 2500000000 12\n")
    add_thread(tasks, "8", "1000 0 1\n")
    (tasks / "9").mkdir()  # It has ended since the folder was listed.
    found = read_meter()
    assert found.waited_s == {"7": 2.5, "8": 0.0}
    assert not found.is_crowded


@pytest.mark.parametrize("text", ["0 0 0\n", "", "words that are none"])
def test_a_system_that_does_not_count_waits_is_asked_for_its_load(tasks, text):
    add_thread(tasks, "7", text)
    assert (read_meter().waited_s, read_meter().is_crowded) == ({}, True)


def test_a_system_without_such_files_is_asked_for_its_load(tasks, monkeypatch):
    monkeypatch.setattr(disturbance, "TASKS", tasks / "nowhere")
    assert read_meter().is_crowded
    monkeypatch.setattr(disturbance.os, "getloadavg", lambda: (2.0, 9.0, 9.0), raising=False)
    assert not read_meter().is_crowded


def test_readings_of_this_system_go_on():
    first, second = read_meter(), read_meter()
    assert second.wall_s >= first.wall_s
    assert second.used_s >= first.used_s
