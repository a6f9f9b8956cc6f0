"""Faults that need no search: files cut at every byte, writers killed at every step; the table.

``make faults`` runs all groups, with searches.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.warm_python import warm_python
from tilesmith.lab.processes.channel import BuildRequest, Ready, encode
from tools.faults.points import Plan, Points, frame_name, plan_of
from tools.faults.rows import Row, as_json, as_markdown

ROOT = Path(__file__).parents[2]
LEAST_RUNS = {"files cut or changed": 3000, "writers killed": 30}


def test_nothing_is_lost_with_files_that_are_cut_and_writers_that_are_killed(tmp_path: Path):
    command = ["-m", "tools.faults", "--only", "files", "writers", "--out", str(tmp_path)]
    done = subprocess.run(
        [*warm_python(), *command],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads((tmp_path / "faults.json").read_text())["rows"]
    for group, least in LEAST_RUNS.items():
        own = [row for row in rows if row["group"] == group]
        assert sum(row["runs"] for row in own) >= least
        assert [row["problems"] for row in own] == [[]] * len(own)


def test_a_broken_promise_is_in_the_table():
    rows = [Row("disks", "full", "goes on"), Row("disks", "gone", "", ("2 winners | lost",), 3)]
    text = as_markdown(rows, "Two faults.")
    assert "| disks | 2 | 4 | 1 |" in text
    assert "| full | real | 1 | goes on |" in text
    assert r"**not as promised**: 2 winners \| lost" in text
    assert [row["runs"] for row in json.loads(as_json(rows, {}))["rows"]] == [1, 3]


@pytest.fixture
def points(tmp_path: Path) -> Points:
    marker = str(tmp_path / "struck")
    return Points(Plan(str(tmp_path), "runner", "a step", 2, marker), "runner")


def test_a_fault_strikes_once_at_its_step(points: Points):
    assert [points.note(step) for step in ("a step", "another", "a step", "a step")] == [
        False, False, True, False,
    ]  # fmt: skip


def test_a_fault_is_not_that_of_another_process(points: Points):
    points.role = "server"
    assert not any(points.note("a step") for _ in range(3))


def test_children_find_their_plan():
    plan = Plan("/somewhere", "build", "start", 3, "marker")
    assert plan_of(plan.environment()) == plan
    assert plan_of({}) is None


@pytest.mark.parametrize("message", [Ready(1.0), BuildRequest(3, encode(Ready(1.0)))])
def test_frames_are_named_unread(message: object):
    assert frame_name(encode(message)) == type(message).__name__
    assert frame_name(encode(None)) == "nothing"
