"""The tool that compares predicted with measured times."""

from __future__ import annotations

import json
import math

import pytest

from tools.rank_correlation import Row, main, ranks, spearman, summarize


def test_equal_values_share_a_rank():
    assert list(ranks([3.0, 1.0, 3.0, 2.0])) == [3.5, 1.0, 3.5, 2.0]


def test_correlation_of_ranks():
    assert spearman([1, 2, 3, 4], [10, 20, 25, 1000]) == pytest.approx(1.0)
    assert spearman([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1.0)
    # By the textbook's formula for ranks without ties: 1 - 6 * sum of d^2 / (n (n^2 - 1)).
    assert spearman([1, 2, 3, 4, 5], [2, 1, 4, 3, 5]) == pytest.approx(1 - 6 * 4 / 120)
    assert math.isnan(spearman([1, 1, 1], [1, 2, 3]))


def test_failed_configs_are_counted_and_left_out():
    rows = [Row("k", {}, float(i), float(i)) for i in (1, 2, 3)]
    rows.append(Row("k", {}, 0.1, problem="out of resources"))
    summary = summarize("k", rows)
    assert (summary["configs"], summary["failed"]) == (4, 1)
    assert summary["spearman"] == pytest.approx(1.0)
    assert summary["predicted_best_ms"] == 1.0
    assert "spearman" not in summarize("k", rows[2:])


def test_runs_on_a_cpu(tmp_path, capsys):
    path = tmp_path / "rows.jsonl"
    status = main(["--device", "cpu", "--count", "4", "--kernel", "softmax", "--json", str(path)])
    assert status == 0
    assert "softmax" in capsys.readouterr().out
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert rows[0]["is_default"]
    assert len(rows) == 6
    assert rows[-1]["configs"] == 5
