"""The table of warp roles: its lines, what it makes of samples, processes that die or hang."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from pathlib import Path

import pytest
import torch

from benchmarks import roles_table
from benchmarks.role_rows import Built, lines
from benchmarks.roles_table import Row, cells, count_changes, markdown, measure, run_all, summary

WORKER = """
import json, os, sys, time
names = sys.argv[sys.argv.index("--worker") + 1:]
for name in names:
    if name == "stuck":
        time.sleep(60)
    print(json.dumps({"built": name}), flush=True)
for name in map(str.strip, sys.stdin):
    if name == "dies":
        print("out of memory", flush=True)
        os._exit(3)
    time.sleep(60 if name == "hangs" else 0)
    print(json.dumps({"row": {"name": name, "ratio": 1.5}}), flush=True)
"""


def test_lines_are_those_of_the_goals():
    names = [line.name for line in lines()]
    assert len(names) == len(set(names))
    counts = {"forward": 10, "backward": 6, "fp8": 3, "since": 3, "product": 13, "held": 8}
    assert {kind: sum(name.startswith(kind) for name in names) for kind in counts} == counts
    assert all((line.goal is None) == line.name.startswith("held") for line in lines())


@pytest.mark.parametrize("name", ["product bf16 512x512x512", "since ragged", "fp8 8x32"])
def test_a_tiny_line_is_right_and_repeatable(name: str):
    line = next(line for line in lines() if line.name.startswith(name))
    row = measure(line, line.build(), rounds=2)
    assert 0 < row.error < 3e-2
    assert row.num_changed == 0
    assert row.low <= row.high
    assert row.ours_ms > 0
    assert row.rival


def test_a_ratio_is_of_medians_and_its_spread_of_rounds(monkeypatch: pytest.MonkeyPatch):
    samples = {"ours": [1.0, 1.0, 9.0, 2.0, 2.0, 2.0], "a": [3.0] * 6, "b": [2.0, 2, 2, 6, 6, 6]}
    monkeypatch.setattr(roles_table, "in_turns", lambda calls, rounds: samples)
    built = Built(lambda: torch.zeros(1), {"a": list, "b": list}, lambda out: 0.5, ["-"], 4.0)
    row = measure(lines()[0], built, rounds=2)
    assert (row.rival, row.rival_ms, row.ours_ms, row.ratio) == ("a", 3.0, 2.0, 1.5)
    assert (row.low, row.high) == (1.875, 2.625)
    assert row.others == {"b": 2.0}
    assert cells(row)[-1] == "**4.0**"
    built.then_ms = 1.0
    row = measure(lines()[0], built, rounds=2)
    assert (row.rival, row.ratio, set(row.others)) == ("ours then", 0.5, {"a", "b"})
    assert row.verdict == "**no**"


def test_our_own_rival_is_what_the_goal_is_about(monkeypatch: pytest.MonkeyPatch):
    samples = {"ours": [1.0] * 3, "cudnn": [0.5] * 3, "our plain scores": [0.9] * 3}
    monkeypatch.setattr(roles_table, "in_turns", lambda calls, rounds: samples | samples)
    rivals = {"cudnn": list, "our plain scores": list}
    monkeypatch.setattr(roles_table, "round_ratios", lambda ours, rival: [1.0, 1.0])
    row = measure(lines()[0], Built(lambda: torch.zeros(1), rivals, lambda out: 0.0), rounds=1)
    assert (row.rival, row.ratio) == ("our plain scores", 0.9)


def test_changed_bits_and_results_that_are_not_written_are_counted():
    calls = iter(range(100))
    assert count_changes(lambda: torch.full([2], float(next(calls) // 30)), repeats=3) == 0
    kept = torch.ones(3)
    assert count_changes(lambda: kept, repeats=4) == 4
    noisy = iter(torch.arange(100.0).split(1))
    assert count_changes(lambda: next(noisy), repeats=4) == 4


def test_a_worker_that_dies_or_hangs_costs_its_own_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "worker.py").write_text(WORKER)
    monkeypatch.setattr(roles_table, "LINE_LIMIT_S", 1.0)
    rows: list[Row] = []
    names = [
        "stuck",
        "dies",
        "hangs",
        "good",
        "behind stuck",
        "behind dies",
        "behind hangs",
        "fine",
    ]
    options = Namespace(limit=60.0, workers=4, build=1.5)
    run_all(names, [sys.executable, str(tmp_path / "worker.py")], options, rows.append)
    assert {row.name: row.problem for row in rows} == {
        "good": "", "fine": "",
        "dies": "ended: out of memory", "behind dies": "ended: out of memory",
        "hangs": "no answer in 1 s", "behind hangs": "ended: no message",
        "stuck": "not built", "behind stuck": "not built",
    }  # fmt: skip


def test_table_and_summary(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    def run(names, prefix, parsed, tell):
        for name in reversed(names):
            tell(Row(name, ratio=0.5, rival_ms=1.0, ours_ms=2.0))

    monkeypatch.setattr(roles_table, "run_all", run)
    path = tmp_path / "rows.jsonl"
    roles_table.main(["--only", "512x512x512,2048x2048x2048", "--json", str(path)])
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["name"].split()[-1] for row in rows] == ["2048x2048x2048", "512x512x512"]
    assert {row["goal"] for row in rows} == {0.93}
    printed = capsys.readouterr().out
    assert printed.count("| product bf16 512x512x512 |") == 2
    assert printed.rindex("512x512x512 |") < printed.rindex("2048x2048x2048 |")
    assert "product: geometric mean 0.500, least 0.500, 2 shapes" in printed
    assert markdown(["a", "b"]) == "| a | b |"
    rows = [Row("product a", 0.93, ratio=0.5, rival_ms=1, ours_ms=2), Row("held b", problem="x")]
    found = summary(rows)
    assert "goals missed: product a" in found
    assert "failed: held b" in found
