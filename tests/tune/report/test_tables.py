"""CSV and JSON lines: their content, that each line is there at once, and a disk that is full."""

from __future__ import annotations

import csv
import json
import logging
from math import inf
from pathlib import Path

import pytest

from tests.tune.report.searches import (
    DEFAULT,
    WINNER,
    failed,
    make_final,
    make_result,
    make_start,
    outcomes,
    tell,
    timed,
)
from tilesmith.lab.reports import LineFile, json_line
from tilesmith.schedule.config import Config
from tilesmith.store.config_text import config_id
from tilesmith.store.outcome import Verdict
from tilesmith.tune.listener import Progress
from tilesmith.tune.report.listeners import CSV_COLUMNS, TableListener


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def records(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_csv_has_a_row_for_each_outcome(tmp_path):
    tell(TableListener(tmp_path / "deep" / "search", run_id="r1"))
    found = rows(tmp_path / "deep" / "search.csv")
    assert tuple(found[0]) == CSV_COLUMNS
    assert found[0] == {
        "run_id": "r1",
        "timestamp_s": "0.125",
        "config_id": config_id(DEFAULT),
        "generation": "0",
        "status": "ok",
        "perf_ms": "0.0735",
        "compile_time_s": "0.250",
        "config": '{"block_sizes":[1],"num_stages":1,"num_warps":4,"pid_type":"flat"}',
    }
    expected = outcomes()
    assert [Config.from_json(row["config"]) for row in found] == [o.config for o in expected]
    assert [row["status"] for row in found] == [o.verdict.value for o in expected]
    assert all((row["perf_ms"] == "") == (row["status"] != "ok") for row in found)


def test_a_second_search_is_appended_below_one_header(tmp_path):
    for run in ("r1", "r2"):
        tell(TableListener(tmp_path / "search", run_id=run), count=40)
    found = rows(tmp_path / "search.csv")
    assert [row["run_id"] for row in found] == ["r1"] * 40 + ["r2"] * 40


def test_runs_are_told_apart_by_themselves(tmp_path):
    for name in ("a", "b"):
        listener = TableListener(tmp_path / name)
        listener.on_start(make_start())
        listener.on_end(make_result())
    ids = {record["run_id"] for name in "ab" for record in records(tmp_path / f"{name}.jsonl")}
    assert len(ids) == 2
    assert all(len(run_id) == 12 for run_id in ids)


def test_the_json_lines_tell_the_whole_search(tmp_path):
    tell(TableListener(tmp_path / "search"))
    found = records(tmp_path / "search.jsonl")
    events = [record["event"] for record in found]
    assert events[0] == "start"
    assert events[-2:] == ["finals", "end"]
    assert events.count("outcome") == 120
    assert events.count("generation") == 3
    start, first = found[0], found[1]
    assert start["kernel"] == "softmax"
    assert start["seeds"][0] == {
        "config": DEFAULT.config,
        "origin": "default",
        "predicted_ms": 0.08,
    }
    assert first["config"] == DEFAULT.config
    assert first["resources"] == {"shared_bytes": 32768, "registers": 128, "spills": 0}
    failure = next(record for record in found if record.get("status") == "wrong result")
    assert failure["perf_ms"] is None
    assert failure["reason"].startswith("needs <much>")
    assert [s["is_tied"] for s in found[-2]["standings"]] == [True, True, False]
    end = found[-1]
    assert Config.from_dict(end["config"]) == WINNER
    assert end["counts"] == {"ok": 100, "wrong result": 3, "infeasible": 17}
    assert end["stop"] == "the budget is used up"
    assert "failures" not in end


def test_each_line_is_on_disk_before_the_next_candidate(tmp_path):
    listener = TableListener(tmp_path / "search")
    listener.on_start(make_start())
    for number in range(1, 4):
        listener.on_outcome(timed(WINNER, 0.5), Progress(float(number), 15.0, number, 0))
        assert len(rows(tmp_path / "search.csv")) == number
        assert len(records(tmp_path / "search.jsonl")) == number + 1
    listener.on_end(make_result())


def test_a_config_with_commas_and_quotes_comes_back(tmp_path):
    config = Config(block_sizes=[1], mode='a "b", c\nd')  # pyright: ignore[reportCallIssue]
    listener = TableListener(tmp_path / "search")
    listener.on_outcome(failed(config, Verdict.BUILD_ERROR, "x\ny"), Progress(1.0, 15.0, 1, 0))
    listener.on_end(make_result())
    (row,) = rows(tmp_path / "search.csv")
    assert Config.from_json(row["config"]) == config


def test_a_prefix_may_have_dots(tmp_path):
    TableListener(tmp_path / "v1.2").on_finals(make_final())
    assert (tmp_path / "v1.2.jsonl").exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs the device that is always full")
def test_a_full_disk_is_one_warning(caplog):
    file = LineFile(Path("/dev/full"), "head")
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            file.append("line")
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "No space left" in record.getMessage()


def test_a_folder_that_cannot_be_made_is_one_warning(tmp_path, caplog):
    (tmp_path / "file").write_text("in the way")
    tell(TableListener(tmp_path / "file" / "search"), count=40)
    assert len(caplog.records) == 2  # one for each table


def test_infinity_is_null_in_json():
    line = json_line({"a": inf, "b": [float("nan"), 1.5], "c": {"d": -inf}})
    assert json.loads(line) == {"a": None, "b": [None, 1.5], "c": {"d": None}}
